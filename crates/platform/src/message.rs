//! Messages made of entries, limited to the size of a condition message (docs/design/operations.md#verdict).

use olm_api::conditions::MAX_MESSAGE_BYTES;

/// Limit of a single entry in bytes. Only a malformed bundle exceeds it.
const MAX_ENTRY_BYTES: usize = 4096;
/// Room for `,... and <k> more` with the largest number.
const REST_BYTES: usize = 32;
/// Limit of the errors in bytes. The entries before them get the rest.
const MAX_ERROR_BYTES: usize = MAX_MESSAGE_BYTES / 4;

/// Returns `head`, the entries and a period, then a second line with the errors, if any.
pub(crate) fn entries_and_errors(head: &str, entries: &[String], errors: &[String]) -> String {
    const ADDITIONALLY: &str =
        " Additionally the following errors were encountered while getting extension metadata: ";
    let tail = if errors.is_empty() {
        ".".to_owned()
    } else {
        let room = MAX_ERROR_BYTES - ADDITIONALLY.len();
        format!(".\n{ADDITIONALLY}{}", joined(errors, "\n", room))
    };
    let room = MAX_MESSAGE_BYTES - head.len() - tail.len();
    format!("{head}{}{tail}", joined(entries, ",", room))
}

pub(crate) fn list(head: &str, entries: &[String], separator: &str) -> String {
    format!("{head}{}", joined(entries, separator, MAX_MESSAGE_BYTES - head.len()))
}

/// Returns at most `bytes` bytes of a text, cut at a character boundary.
pub(crate) fn shown(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Joins the entries. If they exceed `room` bytes, joins those that fit and appends the number of the rest.
fn joined(entries: &[String], separator: &str, room: usize) -> String {
    let whole: usize = entries.iter().map(|entry| entry.len().min(MAX_ENTRY_BYTES) + separator.len()).sum();
    let room = if whole <= room + separator.len() { usize::MAX } else { room.saturating_sub(REST_BYTES) };
    let mut text = String::new();
    for (index, entry) in entries.iter().enumerate() {
        let entry = shown(entry, MAX_ENTRY_BYTES);
        let separator = if index == 0 { "" } else { separator };
        if text.len() + separator.len() + entry.len() > room {
            return format!("{text}{separator}... and {} more", entries.len() - index);
        }
        text.push_str(separator);
        text.push_str(entry);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries(count: usize, bytes: usize) -> Vec<String> {
        (0..count).map(|number| format!("{number:0bytes$}")).collect()
    }

    #[test]
    fn short_lists_are_not_cut() {
        let two = entries(2, 3);
        assert_eq!(entries_and_errors("Found: ", &two, &[]), "Found: 000,001.");
        assert_eq!(
            entries_and_errors("Found: ", &two[..1], &two),
            "Found: 000.\n Additionally the following errors were encountered while getting extension metadata: \
             000\n001"
        );
        assert_eq!(list("", &two, "\n"), "000\n001");
        assert_eq!(list("Names: ", &two, ", "), "Names: 000, 001");
    }

    // Case operations-e36
    #[test]
    fn long_lists_are_cut_between_entries() {
        let message = entries_and_errors("Found: ", &entries(3000, 60), &entries(3000, 60));
        assert!(message.len() <= MAX_MESSAGE_BYTES);
        let (first, second) = message.split_once('\n').unwrap();
        let check = |line: &str, separator: char, end: &str| {
            let (kept, rest) = line.rsplit_once(&format!("{separator}... and ")).unwrap();
            let kept = kept.matches(separator).count() + 1;
            assert_eq!(rest, format!("{} more{end}", 3000 - kept));
        };
        check(first, ',', ".");
        check(second.replace('\n', ",").as_str(), ',', "");
        let fits = entries(500, 60);
        assert_eq!(entries_and_errors("Found: ", &fits, &[]), format!("Found: {}.", fits.join(",")));
    }

    proptest! {
        #[test]
        fn messages_fit_into_a_condition(counts in (0..300_usize, 0..300_usize), bytes in 1..5000_usize) {
            let (entries, errors) = (entries(counts.0, bytes), entries(counts.1, bytes));
            prop_assert!(entries_and_errors("Found: ", &entries, &errors).len() <= MAX_MESSAGE_BYTES);
            prop_assert!(list("", &errors, "\n").len() <= MAX_MESSAGE_BYTES);
            prop_assert!(list("Names: ", &entries, ", ").len() <= MAX_MESSAGE_BYTES);
        }
    }
}
