//! Message of the condition of a plan that waits (docs/design/approvals.md#approval): written by operator-controller,
//! read by the command line.

use std::fmt;

/// Change that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldChange {
    /// Another bundle.
    Upgrade,
    /// Other content of the same bundle.
    Revision,
    /// First installation, which requires approval.
    UnapprovedInstallation,
    /// First installation, which waits for its upgrade window.
    InstallationOutsideWindow,
}

/// Texts before and after the bundle. A text that another one begins with comes later.
const FORMS: [(HeldChange, &str, &str); 4] = [
    (HeldChange::UnapprovedInstallation, "installation of ", " requires approval"),
    (HeldChange::InstallationOutsideWindow, "installation of ", " waits for its upgrade window"),
    (HeldChange::Revision, "a changed revision of ", " is available"),
    (HeldChange::Upgrade, "", " is available"),
];

/// Message of a plan that waits, such as `bundle a.v2 version 2.0.0 is available; plan sha256:…: SUMMARY; NEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMessage<'m> {
    /// Change that waits.
    pub change: HeldChange,
    /// The bundle, such as `bundle a.v2 version 2.0.0`.
    pub bundle: &'m str,
    /// Digest of the plan, which begins with `sha256:`.
    pub digest: &'m str,
    /// Summary of the plan and, after `; `, what releases it.
    pub summary_and_next: &'m str,
}

impl<'m> HeldMessage<'m> {
    /// Reads the message of a condition. `None` if it has another form.
    pub fn parse(message: &'m str) -> Option<Self> {
        let (change, rest) = message.split_once("; plan ")?;
        let (digest, summary_and_next) = rest.split_once(": ").filter(|_| rest.starts_with("sha256:"))?;
        FORMS.into_iter().find_map(|(kind, before, after)| {
            let bundle = change.strip_prefix(before)?.strip_suffix(after)?;
            Some(Self { change: kind, bundle, digest, summary_and_next })
        })
    }

    /// What releases the plan with this summary.
    pub fn next(&self, summary: &str) -> Option<&'m str> {
        self.summary_and_next.strip_prefix(summary)?.strip_prefix("; ")
    }
}

impl fmt::Display for HeldMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, bundle, digest, summary_and_next } = self;
        let form = FORMS.iter().find(|(kind, ..)| kind == change);
        let (before, after) = form.map_or(("", ""), |(_, before, after)| (*before, *after));
        write!(f, "{before}{bundle}{after}; plan {digest}: {summary_and_next}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for (change, ..) in FORMS {
            let bundle = "bundle a.v2 version 2.0.0 from catalog hub";
            let summary_and_next = "1 object created; CRDs x; the operator is busy: moving; wait";
            let written = HeldMessage { change, bundle, digest: "sha256:a", summary_and_next };
            let text = written.to_string();
            let read = HeldMessage::parse(&text).unwrap();
            assert_eq!(read, written, "{change:?}");
            assert_eq!(
                read.next("1 object created; CRDs x"),
                Some("the operator is busy: moving; wait"),
                "{change:?}"
            );
        }
    }

    #[test]
    fn other_messages_are_not_read() {
        for message in [
            "",
            "desired state reached",
            "bundle a.v2 version 2.0.0 is available",
            "bundle a.v2 version 2.0.0 is available; plan b: c; d",
            "bundle a.v2 was rolled back; plan sha256:a: c; d",
        ] {
            assert_eq!(HeldMessage::parse(message), None, "{message}");
        }
    }
}
