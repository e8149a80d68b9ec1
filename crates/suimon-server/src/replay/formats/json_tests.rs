use super::*;
use proptest::prelude::*;

fn read(line: &str, key: &[&str], cost: Option<&str>) -> Result<(u64, String, suimon_core::Cost), String> {
    let wanted =
        Wanted { key: key.iter().map(ToString::to_string).collect(), cost: cost.map(Into::into), ..Wanted::default() };
    let mut draft = Draft::default();
    JsonParser::new(&wanted, "time").parse(line.as_bytes(), &mut draft).map_err(|cause| cause.to_string())?;
    let key = String::from_utf8_lossy(&draft.key).into_owned();
    Ok((draft.time, key, draft.cost))
}

#[test]
fn fields_nested_dotted_and_escaped() {
    for (line, path, value) in [
        (r#"{"time":1,"user":"ann"}"#, "user", "ann"),
        (r#" { "time" : 1 , "user" : { "id" : 7 } } "#, "user.id", "7"),
        (r#"{"time":1,"user.id":"flat"}"#, "user.id", "flat"),
        (r#"{"a":{"b.c":{"d":true}},"time":1}"#, "a.b.c.d", "true"),
        (r#"{"user":"first","time":1,"user":"last"}"#, "user", "last"),
        (r#"{"x":[1,{"user":"no"}],"time":1,"user":null}"#, "user", "null"),
        (r#"{"time":1,"\u0075ser":"\u00e9\ud83d\ude00\n\"\/"}"#, "user", "\u{e9}\u{1f600}\n\"/"),
        (r#"{"time":1,"user":"\ud83d alone"}"#, "user", "\u{fffd} alone"),
        (r#"{"time":1,"a":{"user":1},"user":2}"#, "user", "2"),
    ] {
        assert_eq!(read(line, &[path], None).map(|read| read.1), Ok(value.to_string()), "{line}");
    }
    let read = read(r#"{"time":"2015-05-17T10:05:03Z","n":{"bytes":2.5}}"#, &[], Some("n.bytes")).unwrap();
    assert_eq!(read, (1_431_857_103_000_000_000, String::new(), "2.5".parse().unwrap()));
}

#[test]
fn odd_bytes_in_strings_are_taken() {
    let line = b"{\"time\":1,\"user\":\"\xff\xfe\x01\"}";
    let found = scan(line, &["user".to_string()]).unwrap();
    assert_eq!(found[0].unwrap().text().unwrap().as_ref(), b"\xff\xfe\x01");
}

#[test]
fn numbers_beyond_a_float_are_numbers() {
    assert_eq!(
        read(r#"{"time":1,"user":1e09173243699298}"#, &["user"], None).map(|read| read.1),
        Ok("1e09173243699298".into())
    );
    assert!(read(r#"{"time":1e999,"user":1}"#, &["user"], None).unwrap_err().contains("neither a date nor a number"));
}

#[test]
fn the_cause_says_what_is_wrong() {
    for (line, cause) in [
        ("", "no JSON object"),
        ("[]", "jq -c"),
        (r#"{"time":1}"#, "there is no field `user`"),
        (r#"{"time":1,"user":{}}"#, "`user.name`"),
        (r#"{"time":1,"user":"x"} x"#, "something behind the object at byte 23"),
        (r#"{"time":1,"user":"x"#, "a string is not closed: it begins at byte 19"),
        (r#"{"time":1,"user":01}"#, "no number"),
        (r#"{"time":1,"user":nope}"#, "there is no value at byte 18"),
        (r#"{"time":1,"user":"\x"}"#, "no such escape"),
        (r#"{"time":1,"user":"x""#, "`}` is expected, but the line ends"),
        (r#"{"time":"soon","user":"x"}"#, "neither a date nor a number"),
    ] {
        let said = read(line, &["user"], None).expect_err(line);
        assert!(said.contains(cause), "{line}: {said}");
    }
    let deep = format!(r#"{{"time":1,"user":1,"x":{}"#, "[".repeat(100_000));
    assert!(read(&deep, &["user"], None).unwrap_err().contains("too deep"));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[ -~é\\n\\t]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::hash_map("[ab]", inner, 0..3)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    /// A strict reader is the judge of what is an object and what lies in it.
    #[test]
    fn agrees_with_a_strict_reader(value in json(), damage in prop::option::of((any::<prop::sample::Index>(), "[\\[\\]{}:,\"0-9a.e+ -]"))) {
        let mut line = serde_json::to_string(&serde_json::json!({ "x": value })).unwrap().into_bytes();
        if let Some((at, byte)) = damage {
            let at = at.index(line.len());
            line[at] = byte.as_bytes()[0];
        }
        let paths = ["x", "x.a", "x.b", "x.a.b"].map(String::from);
        let ours = scan(&line, &paths);
        let strict = serde_json::from_slice::<serde_json::Value>(&line);
        // The grammar has no largest number; a 64-bit float does.
        let is_too_large = strict.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range"));
        let strict = strict.ok().filter(serde_json::Value::is_object);
        // A damaged UTF-8 sequence is all right to us.
        if std::str::from_utf8(&line).is_ok() && !is_too_large {
            prop_assert_eq!(ours.is_ok(), strict.is_some(), "{}", String::from_utf8_lossy(&line));
        }
        if let (Ok(found), Some(strict)) = (ours, strict) {
            for (path, found) in paths.iter().zip(found) {
                let want = path.split('.').try_fold(&strict, |value, name| value.get(name));
                let want = want.map(|want| match want {
                    serde_json::Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                match found.map(Value::text) {
                    None => prop_assert_eq!(want, None),
                    Some(None) => {
                        let is_nested = want.is_some_and(|want| want.starts_with(['{', '[']));
                        prop_assert!(is_nested);
                    }
                    Some(Some(text)) if want.as_deref().is_some_and(|want| want.parse::<f64>().is_err()) => {
                        prop_assert_eq!(Some(String::from_utf8_lossy(&text).into_owned()), want);
                    }
                    Some(Some(_)) => prop_assert!(want.is_some()),
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(line in prop::collection::vec(any::<u8>(), 0..120), like in "[{}\\[\\]\",:\\\\ux0-9aetn. -]{0,60}") {
        let paths = ["a".to_string(), "a.b".to_string()];
        for line in [&line[..], like.as_bytes(), format!("{{{like}").as_bytes()] {
            let _ = scan(line, &paths);
            let _ = names(line);
        }
    }
}
