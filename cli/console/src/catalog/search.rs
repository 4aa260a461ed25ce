//! Search over the summaries of packages. A linear pass is fast enough: the largest public catalogs have some hundred
//! packages.

use super::summary::Summary;

/// Highest number of words that are searched.
const WORDS: usize = 8;

/// Words of a query, in lower case.
pub(super) fn words(query: &str) -> Vec<String> {
    query.split_whitespace().take(WORDS).map(str::to_lowercase).collect()
}

/// Rank of a package, lower is better. `None` if a word occurs nowhere.
pub(super) fn rank(package: &Summary, words: &[String]) -> Option<u32> {
    words.iter().map(|word| word_rank(package, word)).sum()
}

fn word_rank(package: &Summary, word: &str) -> Option<u32> {
    let title = package.title.to_lowercase();
    let has = |texts: &[String]| texts.iter().any(|text| text.to_lowercase().contains(word));
    if package.name == word || title == word {
        Some(0)
    } else if package.name.starts_with(word) || title.split_whitespace().any(|part| part.starts_with(word)) {
        Some(1)
    } else if package.name.contains(word) || title.contains(word) {
        Some(2)
    } else if has(&package.keywords) || has(&package.apis) {
        Some(3)
    } else if package.provider.to_lowercase().contains(word) || has(&package.categories) {
        Some(4)
    } else {
        package.description.to_lowercase().contains(word).then_some(5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_must_occur_and_names_rank_first() {
        let package = Summary {
            name: "lamp-operator".into(),
            title: "Lamp Operator".into(),
            provider: "Example Inc".into(),
            description: "Lights for Rooms".into(),
            keywords: vec!["LED".into()],
            apis: vec!["Bulb".into()],
            ..Summary::default()
        };
        for (query, expected) in [
            ("", Some(0)),
            ("lamp-operator", Some(0)),
            ("LAMP", Some(1)),
            ("oper", Some(1)),
            ("p-o", Some(2)),
            ("led", Some(3)),
            ("bulb", Some(3)),
            ("example", Some(4)),
            ("rooms", Some(5)),
            ("lamp rooms", Some(6)),
            ("lamp door", None),
        ] {
            assert_eq!(rank(&package, &words(query)), expected, "{query}");
        }
    }
}
