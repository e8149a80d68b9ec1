//! Every scenario, on the exact model, on the model that counts in ticks, and on
//! the core.

use std::collections::BTreeSet;
use std::path::Path;

use suimon_testkit::golden::{FILES, conformance};
use suimon_testkit::subjects::{CoreSubject, ModelSubject};

suimon_testkit::conformance!(exact_model, ModelSubject::exact());
suimon_testkit::conformance!(model_in_ticks, ModelSubject::in_ticks());
suimon_testkit::conformance!(core, CoreSubject::new());

/// A file that nobody mounts would be a promise that nobody checks.
#[test]
fn every_scenario_file_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let on_disk: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let listed: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(listed, on_disk);
}

/// The core tells every field of every answer, so nothing goes uncompared.
#[test]
fn the_core_supports_and_tells_everything() {
    let report = conformance(&mut CoreSubject::new());
    report.assert_passed(&[]);
    assert_eq!(report.passed(), report.scenarios().len());
    assert_eq!(report.fields_untold(), 0, "{report}");
    assert!(report.passed() > 200 && report.calls() > 30_000 && report.fields_compared() > 1_800, "{report}");
}
