//! Table of the measured figures.

use std::fmt;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Seconds,
    Milliseconds,
    Megabytes,
    Count,
}

/// Target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// At least this multiple of the reference.
    AtLeast(f64),
    /// At most this multiple of the reference.
    AtMost(f64),
    /// At most this value.
    Limit(f64),
    /// No target: the figure is informative.
    Shown,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) ours: f64,
    pub(crate) unit: Unit,
    /// Figure of the reference, in the same unit.
    pub(crate) reference: Option<f64>,
    pub(crate) target: Target,
    /// Additional information.
    pub(crate) note: String,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        self.reference.map(|reference| self.ours / reference)
    }

    fn is_met(&self) -> bool {
        match (self.target, self.ratio()) {
            (Target::Shown, _) => true,
            (Target::Limit(limit), _) => self.ours <= limit,
            (Target::AtLeast(times), Some(ratio)) => ratio >= times,
            (Target::AtMost(times), Some(ratio)) => ratio <= times,
            (_, None) => false,
        }
    }

    fn cells(&self) -> [String; 7] {
        let target = match self.target {
            Target::AtLeast(times) => format!(">= {times:.2} x"),
            Target::AtMost(times) => format!("<= {times:.2} x"),
            Target::Limit(limit) => format!("<= {}", figure(limit, self.unit)),
            Target::Shown => "-".to_owned(),
        };
        let verdict = match (self.target, self.is_met()) {
            (Target::Shown, _) => "",
            (_, true) => "ok",
            (_, false) => "MISSED",
        };
        [
            self.case.clone(),
            figure(self.ours, self.unit),
            self.reference.map_or_else(|| "-".to_owned(), |reference| figure(reference, self.unit)),
            self.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} x")),
            target,
            verdict.to_owned(),
            self.note.clone(),
        ]
    }
}

fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{value:.0} /s"),
        Unit::Seconds => format!("{value:.3} s"),
        Unit::Milliseconds => format!("{value:.2} ms"),
        Unit::Megabytes => format!("{value:.0} MB"),
        Unit::Count if value.fract() == 0.0 => format!("{value}"),
        Unit::Count => format!("{value:.1}"),
    }
}

/// All figures, and remarks on all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    pub(crate) remarks: Vec<String>,
}

impl Table {
    /// Adds a row, and reports the figure on standard error, because the next case may take minutes.
    pub(crate) fn add(
        &mut self,
        case: impl Into<String>,
        ours: f64,
        unit: Unit,
        reference: impl Into<Option<f64>>,
        target: Target,
        note: impl Into<String>,
    ) {
        let (case, reference, note) = (case.into(), reference.into(), note.into());
        eprintln!("{case}: {ours:.4} {unit:?} {note}");
        self.rows.push(Row { case, ours, unit, reference, target, note });
    }

    /// Reports whether every target is met.
    pub(crate) fn all_met(&self) -> bool {
        self.rows.iter().all(Row::is_met)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["case", "ours", "reference", "ratio", "target", "", "note"].map(str::to_owned);
        let lines: Vec<[String; 7]> = std::iter::once(head).chain(self.rows.iter().map(Row::cells)).collect();
        for line in &lines {
            for (column, cell) in line.iter().enumerate() {
                let width = lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
                match column {
                    0 | 5 => write!(f, "{cell:<width$}  ")?,
                    6 => write!(f, "{cell}")?,
                    _ => write!(f, "{cell:>width$}  ")?,
                }
            }
            writeln!(f)?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "{remark}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_compared_with_the_reference() {
        let row = |ours, reference: Option<f64>, target| {
            let mut table = Table::default();
            table.add("case", ours, Unit::PerSecond, reference, target, "");
            table.rows.remove(0)
        };
        let rows = [
            (row(20.0, Some(10.0), Target::AtLeast(2.0)), true),
            (row(19.0, Some(10.0), Target::AtLeast(2.0)), false),
            (row(5.0, Some(10.0), Target::AtMost(0.5)), true),
            (row(6.0, Some(10.0), Target::AtMost(0.5)), false),
            (row(6.0, None, Target::Limit(6.0)), true),
            (row(6.1, Some(10.0), Target::Limit(6.0)), false),
        ];
        for (row, met) in rows {
            assert_eq!(row.is_met(), met, "{row:?}");
            assert_eq!(Table { rows: vec![row], remarks: Vec::new() }.all_met(), met);
        }
        let table =
            Table { rows: vec![row(5.0, Some(10.0), Target::AtMost(0.5))], remarks: vec!["so".to_owned()] };
        let expect = "case  ours  reference   ratio     target      note\n\
                      case  5 /s      10 /s  0.50 x  <= 0.50 x  ok  \nso\n";
        assert_eq!(table.to_string(), expect);
    }
}
