use proxy_operator_core::provider::Provider;

use crate::support::{Lines, PASSWORD_HASH, instance, provider, spec};

#[tokio::test]
async fn a_line_says_whose_it_is() {
    let provider = provider("panic").await;
    let (lines, _guard) = Lines::keep("info");
    provider.create(&instance(), &spec()).await.unwrap_err();
    let line = lines.with("about to fail").pop().unwrap();
    for part in [
        "provider=\"home\"",
        "plugin=\"hostile 0.1.0 (sha256:",
        "call=\"create\"",
        "proxy=\"crawlers/crawl-1\"",
        "step=\"three of four\"",
        "INFO",
    ] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }
}

#[tokio::test]
async fn a_line_stays_one_and_is_cut() {
    let provider = provider("strange-lines").await;
    let (lines, _guard) = Lines::keep("warn");
    provider.get(&instance()).await.unwrap();
    assert_eq!(lines.text().lines().count(), 2, "{}", lines.text());
    let line = lines.with("one").pop().unwrap();
    assert!(line.contains("one\\ntwo\\u{1b}[31m red a key=\"a \\\"value\\\"\""), "{line}");
    let long = lines.with("xxx").pop().unwrap();
    assert!(long.contains("field15=") && !long.contains("field16=") && long.len() < 24_000, "{}", long.len());
}

#[tokio::test]
async fn a_flood_is_limited_and_counted() {
    let provider = provider("flood").await;
    let (lines, _guard) = Lines::keep("info");
    provider.get(&instance()).await.unwrap();
    let written = lines.with(" line ").len();
    assert!((200..400).contains(&written), "{written}");
    let told = lines.with("were dropped").pop().unwrap();
    assert!(told.contains(&format!("dropped={}", 10_000 - written)), "{told} after {written}");
}

#[tokio::test]
async fn what_nobody_reads_costs_no_rate() {
    let provider = provider("flood").await;
    let (lines, _guard) = Lines::keep("warn");
    provider.get(&instance()).await.unwrap();
    assert_eq!(lines.text(), "");
}

#[tokio::test]
async fn user_data_is_in_no_line() {
    let (lines, _guard) = Lines::keep("trace");
    for wish in ["tell-user-data", "panic-with-user-data"] {
        let provider = provider(wish).await;
        provider.create(&instance(), &spec()).await.unwrap_err();
    }
    let text = lines.text();
    assert!(text.contains("user-data is") && text.contains("[redacted]"), "{text}");
    assert!(!text.contains("top-secret") && !text.contains(PASSWORD_HASH), "{text}");
}
