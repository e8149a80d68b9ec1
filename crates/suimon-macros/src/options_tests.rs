use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;

fn read(text: &str) -> Result<Options, String> {
    syn::parse_str(text).map_err(|error: Error| error.to_string())
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let error = read(text).err().unwrap();
    assert!(error.contains(part), "{text}: {error}");
}

#[test]
fn all_options_in_any_place() {
    let options = read("or = None, deadline = d, within = w, cost = a::<b, c>(), limiter = self.limiter,").unwrap();
    assert!(matches!(options.limiter, Limiter::Given(_)) && options.wait);
    assert!(options.or.is_some() && options.cost.is_some() && options.within.is_some() && options.deadline.is_some());
    assert_eq!(options.refuses.unwrap(), "deadline");
}

#[test]
fn a_refusal_is_possible_where_it_was_asked_for() {
    assert!(read("\"block\"").unwrap().refuses.is_none());
    assert!(read("\"block\", wait = true").unwrap().refuses.is_none());
    let options = read("\"block\", wait = false").unwrap();
    assert!(!options.wait && options.refuses.unwrap() == "wait");
    assert_eq!(read("\"block\", within = w, wait = true").unwrap().refuses.unwrap(), "within");
}

#[test]
fn names_that_are_mistyped() {
    refused("limiter = l, wihtin = w", "no option `wihtin`; did you mean `within`?");
    refused("limitr = l", "did you mean `limiter`?");
    refused("limiter = l, costs = 1", "did you mean `cost`?");
    refused("key = k", "there are `limiter`, `cost`, `wait`, `within`, `deadline`, `or`");
    refused("LIMITER", "write `limiter = LIMITER`");
    refused("limiter = l, cost", "`cost` needs a value: `cost = text.len()`");
    refused("limiter = , cost = 1", "`limiter` needs a value");
    refused("limiter = l, r#type = 1", "no option");
}

#[test]
fn what_does_not_go_together() {
    refused("", "a limiter is missing");
    refused("cost = 3", "a limiter is missing");
    refused("\"pace 1/s\", limiter = l", "not both");
    refused("\"pace 1/s\", \"pace 2/s\"", "join limits with `and`");
    refused("cost = 1, \"pace 1/s\"", "comes first");
    refused("limiter = \"pace 1/s\"", "`#[suimon::consume(\"pace 1/s\")]`");
    refused("limiter = l, cost = 1, cost = 2", "`cost` is given twice");
    refused("limiter = l, wait = maybe", "`true` or `false`");
    refused("limiter = l, wait = false, within = w", "that `within` could end");
    refused("limiter = l, deadline = d, wait = false", "that `deadline` could end");
    refused("7", "only a limit such as");
    refused("limiter = l cost = 1", "expected `,`");
    refused("\"60/min\"", "the kind of the limit is missing");
}

#[test]
fn distances() {
    for (from, to, expected) in
        [("cost", "cost", 0), ("", "or", 2), ("wiat", "wait", 2), ("costs", "cost", 1), ("limtier", "limiter", 2)]
    {
        assert_eq!(distance(from, to), expected, "{from} {to}");
    }
    assert!(distance(&"x".repeat(1_000_000), "or") <= 64);
}

const VALUES: [(&str, &str); 6] = [
    ("limiter", "&*self.limiters[n]"),
    ("cost", "if n > 3 { n } else { 3 }"),
    ("wait", "false"),
    ("within", "Duration::from_secs(2)"),
    ("deadline", "Instant::now() + pause"),
    ("or", "return Err(Box::<dyn Error>::from(\"busy\"))"),
];

proptest! {
    /// Whatever is given, in whatever order, the answer follows from the rules alone.
    #[test]
    fn any_options(
        order in Just(VALUES.to_vec()).prop_shuffle(),
        count in 0..=VALUES.len(),
        text in any::<bool>(),
        twice in any::<bool>(),
    ) {
        let mut given: Vec<(&str, &str)> = order.into_iter().take(count).collect();
        if twice && let Some(first) = given.first().copied() {
            given.push(first);
        }
        let has = |name: &str| given.iter().any(|(given, _)| *given == name);
        let mut words: Vec<String> = given.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        if text {
            words.insert(0, "\"pace 60/min\"".to_owned());
        }
        let options = read(&words.join(", "));
        let right = !(twice && count > 0)
            && text != has("limiter")
            && !(has("wait") && (has("within") || has("deadline")));
        prop_assert_eq!(options.is_ok(), right, "{:?}: {:?}", words, options.err());
        if let Ok(options) = options {
            prop_assert_eq!(options.cost.is_some(), has("cost"));
            prop_assert_eq!(options.or.is_some(), has("or"));
            prop_assert_eq!(options.wait, !has("wait"));
            prop_assert_eq!(options.refuses.is_some(), has("wait") || has("within") || has("deadline"));
        }
    }

    #[test]
    fn distance_is_a_metric(a in "[a-d]{0,8}", b in "[a-d]{0,8}", c in "[a-d]{0,8}") {
        prop_assert_eq!(distance(&a, &b) == 0, a == b);
        prop_assert_eq!(distance(&a, &b), distance(&b, &a));
        prop_assert!(distance(&a, &c) <= distance(&a, &b) + distance(&b, &c));
    }

    /// Words of options in a mess: an error or options, never a panic.
    #[test]
    fn any_words(words in subsequence(MESS.to_vec(), 0..=MESS.len()).prop_shuffle()) {
        let _ = read(&words.join(" "));
    }
}

const MESS: [&str; 16] =
    ["limiter", "=", ",", "cost", "=", "3", ",", "\"pace 1/s\"", "wait", "=", "false", "or", ",", "::", "&", "'a"];
