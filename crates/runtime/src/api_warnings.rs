//! Warning headers of the API server on writes, collected per task.

use std::cell::RefCell;

use http::HeaderMap;
use http::header::WARNING;

tokio::task_local! {
    static WARNINGS: RefCell<Vec<String>>;
}

/// Runs `work`, and returns with its result the warnings about writes in the same task, in order.
pub async fn listening<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    WARNINGS
        .scope(RefCell::default(), async {
            let result = work.await;
            (result, WARNINGS.with(RefCell::take))
        })
        .await
}

/// Collects the warnings in the answer to a write, if the current task listens.
pub(crate) fn record(headers: &HeaderMap) {
    let values = headers.get_all(WARNING).into_iter().filter_map(|value| value.to_str().ok());
    let texts: Vec<String> = values.filter_map(text).collect();
    if !texts.is_empty() {
        // Fails outside of `listening`.
        let _ = WARNINGS.try_with(|warnings| warnings.borrow_mut().extend(texts));
    }
}

/// The text of a header `299 <agent> "<text>"`, with escapes resolved.
fn text(value: &str) -> Option<String> {
    let quoted = value.strip_prefix("299 ")?.split_once('"')?.1;
    let mut text = String::new();
    let mut letters = quoted.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => text.push(letters.next()?),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn warnings_are_collected_within_listening_only() {
        let mut headers = HeaderMap::new();
        headers.append(WARNING, r#"299 - "policy/v1beta1 is \"deprecated\"" "Thu, 01 Jan""#.parse().unwrap());
        headers.append(WARNING, r#"299 - "second""#.parse().unwrap());
        headers.append(WARNING, "199 - \"other\"".parse().unwrap());
        headers.append(WARNING, "299 - \"open".parse().unwrap());
        record(&headers);
        let (done, warnings) = listening(async {
            tokio::task::yield_now().await;
            record(&headers);
            7
        })
        .await;
        assert_eq!(
            (done, warnings),
            (7, vec!["policy/v1beta1 is \"deprecated\"".to_owned(), "second".to_owned()])
        );
        let ((), silent) = listening(async {}).await;
        assert!(silent.is_empty());
    }
}
