//! The replay as a library, on any bytes whatever.

use proptest::prelude::*;
use std::time::Duration;
use suimon_server::replay::{Format, Input, Options, Outcome, Wanted, report, run};

fn replay(bytes: &[u8], format: Format, key: &str) -> Result<Outcome, String> {
    // An input in memory is meant for what is built in: the test gives it away.
    let bytes: &'static [u8] = Box::leak(bytes.to_vec().into_boxed_slice());
    let options = Options {
        inputs: vec![Input::Memory { name: "a test", bytes }],
        format,
        wanted: Wanted { key: vec![key.to_string()], ..Wanted::default() },
        reorder: Duration::from_secs(60),
        policies: vec!["bucket 1/s burst 2".parse().unwrap(), "window 2/s and fixed 3/min".parse().unwrap()],
        top: 3,
        show_unreadable: 2,
        search: true,
    };
    run(&options, &mut |_| ()).map_err(|error| error.to_string())
}

/// A line of some format, and what damage does to it.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let plain = prop_oneof![
        (0_u32..60, "[ab]").prop_map(|(second, client)| format!(
            "{client} - - [17/May/2015:10:05:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\""
        )),
        (0_u32..99, "[ab]").prop_map(|(time, client)| format!("{{\"time\":{time},\"client\":\"{client}\"}}")),
        (0_u32..99, "[ab]").prop_map(|(time, client)| format!("{time},{client}")),
        Just("time,client".to_string()),
        Just(String::new()),
    ];
    let damage = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (plain, damage).prop_map(|(plain, damage)| {
        let mut line = plain.into_bytes();
        if let Some((at, byte)) = damage.filter(|_| !line.is_empty()) {
            let at = at.index(line.len());
            line[at] = byte;
        }
        line
    })
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_panics(
        lines in prop::collection::vec(line(), 0..40),
        format in prop::sample::select(vec![Format::Auto, Format::Combined, Format::Json, Format::Csv]),
    ) {
        let bytes = lines.join(&b'\n');
        let Ok(outcome) = replay(&bytes, format, "client") else { return Ok(()) };
        let blank = bytes.split(|byte| *byte == b'\n').filter(|line| line.trim_ascii().is_empty()).count() as u64;
        let header = u64::from(outcome.files[0].format == Format::Csv && outcome.lines() > 0);
        if header == 0 {
            // What is neither replayed nor unreadable is a blank line; the last may not count.
            let rest = outcome.lines() - outcome.requests - outcome.unreadable();
            prop_assert!(rest == blank || rest + 1 == blank, "{rest} of {blank}");
        }
        for (index, policy) in outcome.policies.iter().enumerate() {
            prop_assert_eq!(policy.allowed + policy.denied, outcome.requests);
            let bars = outcome.timeline.bars(index);
            prop_assert_eq!(bars.map(|bar| bar.2).sum::<u64>(), policy.denied);
            prop_assert!(policy.most_denied.len() <= 3 && policy.keys_denied <= outcome.keys);
        }
        let look = report::Look { width: 80, unicode: false, colors: false };
        prop_assert!(report::text(&outcome, &look).len() > 20);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&report::json(&outcome)).is_ok());
        prop_assert!(report::html(&outcome).ends_with("</html>\n") && report::svg(&outcome).ends_with("</svg>\n"));
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = replay(&bytes, Format::Auto, "client");
    }

    /// Splitting a log over several files changes nothing but which came first of equal times.
    #[test]
    fn several_files_are_one_log(seconds in prop::collection::vec((0_u32..60, 0_usize..3), 1..60)) {
        let line = |second: u32| format!("a - - [17/May/2015:10:05:{second:02} +0000] \"GET / HTTP/1.1\" 200 5\n");
        let mut files = vec![String::new(); 3];
        for (second, file) in &seconds {
            files[*file].push_str(&line(*second));
        }
        let whole: String = seconds.iter().map(|(second, _)| line(*second)).collect();
        let one = replay(whole.as_bytes(), Format::Combined, "client").unwrap();
        let inputs = files.into_iter().map(|file| Input::Memory { name: "a part", bytes: Box::leak(file.into_bytes().into_boxed_slice()) });
        let options = Options {
            inputs: inputs.collect(),
            format: Format::Combined,
            wanted: Wanted { key: vec!["client".to_string()], ..Wanted::default() },
            reorder: Duration::from_secs(60),
            policies: one.policies.iter().map(|policy| policy.policy.clone()).collect(),
            top: 3,
            show_unreadable: 2,
            search: true,
        };
        let three = run(&options, &mut |_| ()).unwrap();
        prop_assert_eq!(three.requests, one.requests);
        prop_assert_eq!(three.policies, one.policies);
        prop_assert_eq!(three.timeline, one.timeline);
    }
}
