//! What a controller reports of itself: its metrics and its log.

use flurry_core::controller::Controller;
use flurry_core::id::ConfigNumber;
use tracing::info;

use crate::metrics::{Page, count};

/// Writes a controller's metrics; `None` for one that does not lead.
pub(super) fn report(page: &mut Page, leading: Option<&Controller>) {
    page.gauge(
        (
            "flurry_controller_is_leader",
            "Whether it is the controller that decides.",
        ),
        &[],
        f64::from(u8::from(leading.is_some())),
    );
    let Some(controller) = leading else { return };
    let config = controller.config();
    let (members, gone) = config.map_or((0, 0), |config| {
        let gone = config.members.iter().filter(|it| it.gone).count();
        (config.members.len() - gone, gone)
    });
    let number = config.map_or(0, |config| config.number.0);
    let changes = config.is_some_and(|config| config.next.is_some());
    page.gauge(
        ("flurry_configuration", "The number of the configuration."),
        &[],
        number.into(),
    );
    page.gauge(
        (
            "flurry_configuration_changing",
            "Whether servers are copying from each other.",
        ),
        &[],
        f64::from(u8::from(changes)),
    );
    let servers = ("flurry_servers", "Servers of the configuration.");
    page.gauge(servers, &[("state", "up")], count(members));
    page.gauge(servers, &[("state", "gone")], count(gone));
    let sessions = ("flurry_sessions", "Sessions that have had an owner.");
    page.gauge(sessions, &[], count(controller.sessions()));
}

/// Logs each change of the configuration once.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    number: ConfigNumber,
    changing: bool,
}

impl ChangeLog {
    pub(super) fn look(&mut self, leading: Option<&Controller>) {
        let Some(config) = leading.and_then(Controller::config) else {
            return;
        };
        let changing = config.next.is_some();
        if (config.number, changing) == (self.number, self.changing) {
            return;
        }
        (self.number, self.changing) = (config.number, changing);
        let gone = config.members.iter().filter(|it| it.gone).count();
        let up = config.members.len() - gone;
        info!(
            configuration = config.number.0,
            up, gone, changing, "the configuration has changed"
        );
    }
}
