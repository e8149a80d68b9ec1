//! Any text: a policy that prints as a text which means the same, or an error
//! that points into the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use suimon_core::{Cost, Gate, Policy, Timestamp};

fuzz_target!(|text: &str| {
    let _ = text.parse::<Cost>().map(|cost| assert_eq!(cost.to_string().parse(), Ok(cost)));
    match text.parse::<Policy>() {
        Ok(policy) => {
            let printed = policy.to_string();
            assert_eq!(printed.parse::<Policy>().as_ref(), Ok(&policy), "{printed}");
            if let Ok(gate) = Gate::new(policy) {
                let mut state = gate.fresh();
                let _ = gate.allow(&mut state, Timestamp::MAX, Cost::ONE);
            }
        }
        Err(error) => {
            assert!(error.at().is_some_and(|at| text.is_char_boundary(at)), "{error:?}");
            assert!(error.to_string().len() < 400, "{error}");
        }
    }
});
