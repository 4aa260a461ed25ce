//! Feature gates: `--feature-gates=A=true,B=false`, repeated and accumulated (docs/design/operations.md#flag-syntax,
//! docs/design/operations.md#feature-gates, docs/design/operations.md#start-up-errors).

use std::collections::BTreeMap;

use crate::go_value;

/// Prefix of the error of a gate that this version does not have.
pub const UNKNOWN_GATE: &str = "unrecognized feature gate: ";

/// Stage of a gate. `AllAlpha` and `AllBeta` set the gates of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off by default.
    Alpha,
    /// Not final yet.
    Beta,
    /// Final. Can still be set.
    Ga,
}

/// A gate of a server.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Name in the flag.
    pub name: &'static str,
    /// Value if no flag sets it.
    pub default: bool,
    /// Stage, for `AllAlpha` and `AllBeta`.
    pub stage: Stage,
}

/// The value of every gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    values: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Applies the flag values in order to the defaults of `known`.
    ///
    /// # Errors
    /// The text of docs/design/operations.md#start-up-errors for an unknown gate, a missing or a malformed boolean.
    pub fn parse(known: &[Gate], flags: &[String]) -> Result<Self, String> {
        let mut explicit: BTreeMap<&'static str, bool> = BTreeMap::new();
        let mut stages: Vec<(Stage, bool)> = Vec::new();
        for flag in flags {
            let invalid =
                |why: String| format!("invalid argument {flag:?} for \"--feature-gates\" flag: {why}");
            for pair in flag.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                let (name, value) =
                    pair.split_once('=').ok_or_else(|| invalid(format!("missing bool value for {pair}")))?;
                let (name, value) = (name.trim(), value.trim());
                let on = go_value::boolean(value)
                    .map_err(|why| invalid(format!("invalid value of {name}={value}, err: {why}")))?;
                match (name, known.iter().find(|gate| gate.name == name)) {
                    ("AllAlpha", _) => stages.push((Stage::Alpha, on)),
                    ("AllBeta", _) => stages.push((Stage::Beta, on)),
                    (_, Some(gate)) => {
                        explicit.insert(gate.name, on);
                    }
                    (_, None) => return Err(invalid(format!("{UNKNOWN_GATE}{name}"))),
                }
            }
        }
        let value = |gate: &Gate| {
            let of_stage = stages.iter().rev().find(|(stage, _)| *stage == gate.stage).map(|(_, on)| *on);
            explicit.get(gate.name).copied().or(of_stage).unwrap_or(gate.default)
        };
        Ok(Self { values: known.iter().map(|gate| (gate.name, value(gate))).collect() })
    }

    /// `true` if the gate is on. Unknown gates are off.
    pub fn enabled(&self, name: &str) -> bool {
        self.values.get(name).copied().unwrap_or(false)
    }

    /// All gates with their values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        self.values.iter().map(|(name, on)| (*name, *on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Expected = Result<(bool, bool, bool), &'static str>;

    const KNOWN: [Gate; 3] = [
        Gate { name: "A", default: false, stage: Stage::Alpha },
        Gate { name: "B", default: false, stage: Stage::Alpha },
        Gate { name: "G", default: true, stage: Stage::Ga },
    ];

    #[test]
    fn gate_flags_override_defaults_and_reject_unknown_gates() {
        let rows: [(&[&str], Expected); 9] = [
            (&[], Ok((false, false, true))),
            (&["A=true"], Ok((true, false, true))),
            (&["A=true", "B=T,G=0"], Ok((true, true, false))),
            (&["A=true", "A=false"], Ok((false, false, true))),
            (&["A=false", "AllAlpha=true"], Ok((false, true, true))),
            (&["AllBeta=true"], Ok((false, false, true))),
            (
                &["X=true"],
                Err("invalid argument \"X=true\" for \"--feature-gates\" flag: unrecognized feature gate: X"),
            ),
            (&["A"], Err("invalid argument \"A\" for \"--feature-gates\" flag: missing bool value for A")),
            (
                &["A=maybe"],
                Err(
                    "invalid argument \"A=maybe\" for \"--feature-gates\" flag: invalid value of A=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
                ),
            ),
        ];
        for (flags, expect) in rows {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let got = FeatureGates::parse(&KNOWN, &flags)
                .map(|gates| (gates.enabled("A"), gates.enabled("B"), gates.enabled("G")));
            assert_eq!(got, expect.map_err(str::to_owned), "{flags:?}");
        }
    }
}
