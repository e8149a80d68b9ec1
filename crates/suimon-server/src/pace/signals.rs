//! Ctrl-C and SIGTERM: the first one ends the run in order, a second one at once.

use std::sync::Arc;

use super::Error;
use super::run::Control;

/// Begins to listen.
#[cfg(unix)]
pub(super) fn watch(control: &Arc<Control>) -> Result<(), Error> {
    use super::stop::Cause;
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use std::time::Duration;

    /// How long the run may take to see that its commands have been killed. After
    /// that the process ends, whatever it hangs in.
    const PATIENCE: Duration = Duration::from_secs(1);

    let failed = |error| Error::Io(format!("signals cannot be listened to: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let control = control.clone();
    let listen = move || {
        let mut signals = signals.forever();
        let Some(first) = signals.next() else { return };
        control.stop(Cause::Signal(first));
        if signals.next().is_none() {
            return;
        }
        control.groups.kill();
        std::thread::sleep(PATIENCE);
        // Nothing that needs a lock: whoever hangs may hold it.
        std::process::exit(128 + first);
    };
    std::thread::Builder::new().name("signals".to_string()).spawn(listen).map_err(failed)?;
    Ok(())
}

/// Elsewhere Ctrl-C ends the process, as it does by itself.
#[cfg(not(unix))]
pub(super) fn watch(_: &Arc<Control>) -> Result<(), Error> {
    Ok(())
}
