//! Runs the thread of a gateway. It serves the client sockets and drives the owner of their keys.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use flurry_core::id::{DurationNs, Epoch, MonoNs};
use flurry_core::message::{Control, Message};
use flurry_core::resp::{Command, Reply, Requests, error};
use tracing::{info, warn};

use super::about::described;
use super::authentication::Authentication;
use super::connection::Connection;
use super::dispatcher::{Dispatcher, GlobalCommand};
use super::sockets::{ClientSocket, Read, Sockets, UNFINISHED_BYTES_MAX};
use super::tls::Tls;
use super::users::Users;
use super::walks::Over;
use crate::Error;
use crate::link::{Letter, Link};
use crate::metrics::{Page, count};
use crate::node::Part;

/// Number of steps that one client gets per turn, before the gateway serves the next client. A step
/// is a read, a command, or an operation that a command begins.
const TURN_MAX: usize = 256;

/// Interval between two searches for clients that have exceeded a time limit.
const TICK: DurationNs = DurationNs::millis(1_000);

/// Time after which the gateway closes a connection whose last reply the client does not take.
const LINGER: DurationNs = DurationNs::millis(5_000);

/// A change that the program around the gateway requests while the gateway runs.
#[derive(Debug)]
pub(super) enum Order {
    Users(Users),
    Tls(Tls),
    Close,
}

/// Requested changes that the gateway's thread has not carried out yet.
pub(super) type Orders = Arc<Mutex<Vec<Order>>>;

/// Time for which a closing gateway waits until every replica has every write.
const CLOSING_MAX: DurationNs = DurationNs::millis(5_000);

/// The result of reading from a client and running its commands.
enum Heard {
    /// The client has sent nothing more, or has no room for another command.
    Nothing,
    /// The client may have sent more.
    More,
    /// The client sent a command that concerns other clients. Its later commands must wait.
    GlobalCommand(GlobalCommand),
    /// The client is gone.
    End,
}

#[derive(Debug)]
pub(super) struct EventLoop {
    pub(super) dispatcher: Dispatcher,
    pub(super) sockets: Sockets,
    orders: Orders,
    tick: MonoNs,
    /// Number of wrong passwords that the log already reports.
    wrong_logged: u64,
    closing: Option<Closing>,
}

/// The progress of a gateway that closes.
#[derive(Debug)]
struct Closing {
    until: MonoNs,
    told: Receiver<Result<(), Error>>,
    is_over: bool,
}

impl EventLoop {
    pub(super) fn new(
        now: MonoNs,
        dispatcher: Dispatcher,
        sockets: Sockets,
        orders: Orders,
    ) -> Self {
        Self {
            dispatcher,
            sockets,
            orders,
            tick: now,
            wrong_logged: 0,
            closing: None,
        }
    }

    /// Stops taking commands, lets commands under way finish, and begins to give the slots back.
    fn begin_to_close(&mut self, now: MonoNs) {
        if self.closing.is_some() {
            return;
        }
        info!("closing: clients are let go, and the slots are given back");
        let (sender, told) = sync_channel(1);
        self.dispatcher.owner.close(now, sender);
        for connection in self.sockets.iter_mut() {
            connection.ends = true;
        }
        let all: Vec<u64> = self.sockets.iter().map(|it| it.number).collect();
        for number in all {
            self.sockets.list(number);
        }
        self.closing = Some(Closing {
            until: now.after(CLOSING_MAX),
            told,
            is_over: false,
        });
    }

    fn go_on_closing(&mut self, now: MonoNs) {
        let Some(closing) = self.closing.as_mut().filter(|it| !it.is_over) else {
            return;
        };
        match closing.told.try_recv() {
            Ok(Ok(())) => info!("closed: every write is on every replica"),
            Ok(Err(_)) | Err(TryRecvError::Disconnected) => {}
            Err(TryRecvError::Empty) if now < closing.until => return,
            Err(TryRecvError::Empty) => {
                warn!("closed before every write was on every replica: a server is silent");
            }
        }
        closing.is_over = true;
    }

    fn look(&mut self, now: MonoNs) {
        let dispatcher = &mut self.dispatcher;
        self.sockets.look(|number, address| {
            dispatcher.counts.connections += 1;
            let requests = Requests::new(dispatcher.limits());
            Connection::new(number, address, now, dispatcher.nobody(), requests)
        });
    }

    /// Reads from one client, runs its commands and writes its replies, up to a limit.
    fn attend(&mut self, now: MonoNs, number: u64) {
        match self.hear(now, number) {
            Heard::Nothing => {}
            Heard::More => self.sockets.list(number),
            Heard::GlobalCommand(command) => {
                self.run(now, number, command);
                self.sockets.list(number);
            }
            Heard::End => return self.close(number),
        }
        if let Some(longest) = self.sockets.weigh(number) {
            self.send_away(longest);
        }
        if let Some(client) = self.sockets.find(number)
            && !client.write()
        {
            self.close(number);
        }
    }

    /// Runs a client's commands in their order until another client gets its turn.
    fn hear(&mut self, now: MonoNs, number: u64) -> Heard {
        let Some((client, buffer)) = self.sockets.with_buffer(number) else {
            return Heard::Nothing;
        };
        // Unsent replies may have blocked further commands, so they are written first.
        if !client.connection.output.is_empty() && !client.write() {
            return Heard::End;
        }
        let mut left = TURN_MAX;
        while left > 0 {
            if client.connection.has_rest() {
                left -= self.dispatcher.begin(now, &mut client.connection, left);
                if client.connection.has_rest() && left > 0 {
                    // The rest begins when an operation under way is answered.
                    return Heard::Nothing;
                }
                continue;
            }
            left -= 1;
            if let Some(words) = client.connection.parked.take() {
                let connection = &mut client.connection;
                if let Some(command) = self.dispatcher.command(now, connection, &words) {
                    return Heard::GlobalCommand(command);
                }
                if connection.parked.is_some() {
                    return Heard::Nothing;
                }
                continue;
            }
            if client.is_finished() {
                match client.read(buffer) {
                    Read::Some => continue,
                    Read::Nothing => return Heard::Nothing,
                    Read::End => return Heard::End,
                }
            }
            let connection = &mut client.connection;
            if !connection.has_room() {
                return Heard::Nothing;
            }
            match connection.requests.take(&mut connection.input) {
                Ok(Some(Command::TooLong)) => {
                    connection.heard = now;
                    connection.transaction.refuse();
                    connection.said.next_number = None;
                    let most = self.dispatcher.limits().word_bytes_max;
                    let refusal = format!("ERR value too large: at most {most} bytes");
                    connection.respond(error(refusal));
                }
                Ok(Some(Command::Words(words))) => {
                    connection.heard = now;
                    connection.command_bytes = words.iter().map(bytes::Bytes::len).sum();
                    if let Some(command) = self.dispatcher.command(now, connection, &words) {
                        return Heard::GlobalCommand(command);
                    }
                    if connection.parked.is_some() {
                        return Heard::Nothing;
                    }
                }
                Ok(None) => match client.read(buffer) {
                    Read::Some => {}
                    Read::Nothing => return Heard::Nothing,
                    Read::End => return Heard::End,
                },
                Err(refusal) => {
                    connection.respond(error(format!("ERR {refusal}")));
                    connection.ends = true;
                }
            }
        }
        Heard::More
    }

    fn run(&mut self, now: MonoNs, number: u64, command: GlobalCommand) {
        let reply = match command {
            GlobalCommand::List => {
                let lines = self.sockets.iter().map(|it| described(it, now));
                Reply::text(lines.collect::<String>())
            }
            GlobalCommand::Kill {
                number: wanted,
                address,
                skip_me,
                counted,
            } => {
                let fits = |it: &&Connection| {
                    wanted.is_none_or(|number| it.number == number)
                        && address
                            .as_ref()
                            .is_none_or(|to| it.address.to_string() == *to)
                        && !(skip_me && it.number == number)
                };
                let found: Vec<u64> = self
                    .sockets
                    .iter()
                    .filter(fits)
                    .map(|it| it.number)
                    .collect();
                let count = found.len();
                for other in found {
                    if let Some(ClientSocket { connection, .. }) = self.sockets.find(other) {
                        connection.ends = true;
                        self.sockets.list(other);
                    }
                }
                match (counted, count) {
                    (true, _) => Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
                    (false, 0) => error("ERR No such client"),
                    (false, _) => Reply::Status("OK"),
                }
            }
            GlobalCommand::Info(sections) => {
                super::info::lines(&self.dispatcher, &self.sockets, now, &sections)
            }
        };
        if let Some(client) = self.sockets.find(number) {
            client.connection.respond(reply);
        }
    }

    /// Delivers the outcomes of operations, password checks and `WAIT` commands to their clients.
    fn deliver(&mut self, now: MonoNs) {
        for told in self.dispatcher.outcomes() {
            if let Some((number, place, step, outcome)) = self.dispatcher.settle(told)
                && let Some(client) = self.sockets.find(number)
            {
                client.connection.said.knows_of_doubt |= matches!(outcome, Err(Error::TailUnknown));
                let connection = &mut client.connection;
                if let Some(finished) = connection.answered(place, step, outcome) {
                    let (at, name) = (self.dispatcher.owner.wall(now), &connection.said.name);
                    self.dispatcher
                        .slow
                        .note(&finished, at, connection.address, name);
                }
                self.dispatcher.go_on_stages(now, connection);
                // Clients that waited for its keys have their turn first.
                for freed in self.dispatcher.staged.take_freed() {
                    self.sockets.list(freed);
                }
                self.sockets.list(number);
            }
        }
        let found = self
            .dispatcher
            .authentication
            .as_ref()
            .map(Authentication::found);
        for found in found.into_iter().flatten() {
            let number = found.connection;
            match self.sockets.find(number) {
                Some(client) => {
                    self.dispatcher.found(&mut client.connection, found);
                    self.sockets.list(number);
                }
                None => self.dispatcher.left(number),
            }
        }
        for (number, place, copies) in self.dispatcher.waits_over(now) {
            if let Some(client) = self.sockets.find(number) {
                client.connection.settled(place, Reply::Integer(copies));
                self.sockets.list(number);
            }
        }
    }

    /// Continues the walks through the keys, and answers the clients whose walk is over.
    fn walk(&mut self, now: MonoNs, link: &mut Link) {
        for (number, place, over) in self.dispatcher.walk(now, link) {
            if let Some(client) = self.sockets.find(number) {
                match over {
                    Over::Reply(reply) => {
                        client.connection.settled(place, reply);
                    }
                    Over::Removal(plan) => {
                        let at = self.dispatcher.owner.wall(now);
                        client.connection.go_on(place, plan, at);
                    }
                }
                self.sockets.list(number);
            }
        }
    }

    /// Closes the connections of clients that have exceeded a time limit.
    fn tick(&mut self, now: MonoNs) {
        if now < self.tick {
            return;
        }
        self.tick = now.after(TICK);
        let wrong = self.dispatcher.counts.wrong_passwords;
        let count = wrong - std::mem::replace(&mut self.wrong_logged, wrong);
        if count > 0 {
            warn!(count, "passwords were wrong");
        }
        let gone = |client: &&ClientSocket| {
            let it = &client.connection;
            let lingers = it.ends && now.since(it.heard) > LINGER;
            lingers || (client.is_stranger() && now.since(it.since) > self.dispatcher.entry_timeout)
        };
        let gone = self.sockets.clients().filter(gone);
        let gone: Vec<u64> = gone.map(|client| client.connection.number).collect();
        for number in gone {
            self.close(number);
        }
    }

    fn close(&mut self, number: u64) {
        self.dispatcher.left(number);
        self.dispatcher.watches.forget(number);
        self.dispatcher.staged.end(number);
        self.sockets.close(number);
    }

    /// Closes a connection whose unfinished command takes too much of the shared memory.
    fn send_away(&mut self, number: u64) {
        if let Some(client) = self.sockets.find(number) {
            let most = UNFINISHED_BYTES_MAX >> 20;
            let reason = format!("unfinished commands of all clients exceed {most} MiB");
            client.connection.respond(error(format!("ERR {reason}")));
            client.write();
            let (from, commands) = (client.connection.address, client.connection.under_way());
            warn!(%from, commands, "{reason}: the client with the longest one is sent away");
        }
        self.close(number);
    }

    fn obey(&mut self, now: MonoNs) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *orders);
        drop(orders);
        for order in all {
            match order {
                Order::Tls(tls) => {
                    self.sockets.secure(tls);
                    info!("connections have another certificate from now on");
                }
                Order::Close => self.begin_to_close(now),
                Order::Users(users) => {
                    self.change(users);
                    info!("the users have changed");
                }
            }
        }
    }

    /// Notes which slots other gateways have taken, and logs them with one line for each new epoch.
    fn log_lost(&mut self) {
        let mut lost: BTreeMap<Epoch, Vec<RangeInclusive<u16>>> = BTreeMap::new();
        for (place, epoch) in self.dispatcher.owner.take_lost() {
            let slots = self.dispatcher.cluster.lose(place);
            lost.entry(epoch).or_default().push(slots);
        }
        for (epoch, slots) in lost {
            let slots = merged(slots);
            warn!(slots, epoch = epoch.0, "another gateway has these slots");
        }
    }

    /// Replaces the users. A client must connect again if its user was removed or has a new
    /// password.
    fn change(&mut self, users: Users) {
        let Some(authentication) = &mut self.dispatcher.authentication else {
            return;
        };
        authentication.change(users);
        let mut gone = Vec::new();
        for connection in self.sockets.iter_mut() {
            let Some(user) = &connection.said.user else {
                continue;
            };
            match authentication.still(user) {
                Some(user) => connection.said.user = Some(Arc::clone(user)),
                None => gone.push(connection.number),
            }
        }
        for number in gone {
            self.close(number);
        }
    }
}

impl Part for EventLoop {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        match letter.message {
            Message::Control(Control::Listed(listed)) => self.dispatcher.listed(&listed),
            _ => self.dispatcher.owner.message(now, letter),
        }
    }

    fn report(&self, page: &mut Page) {
        self.dispatcher.owner.tell_of(page);
        let counts = &self.dispatcher.counts;
        let clients = ("flurry_gateway_clients", "Clients that are connected.");
        page.gauge(clients, &[], count(self.sockets.len()));
        let serves = (
            "flurry_gateway_is_open",
            "Whether it owns its slots; a standby does not.",
        );
        let open = self.dispatcher.owner.is_open();
        page.gauge(serves, &[], f64::from(u8::from(open)));
        for (name, number) in [
            (
                ("flurry_gateway_connections_total", "Clients that came."),
                counts.connections,
            ),
            (
                ("flurry_gateway_commands_total", "Commands of clients."),
                counts.commands,
            ),
            (
                (
                    "flurry_gateway_wrong_passwords_total",
                    "Passwords that were wrong.",
                ),
                counts.wrong_passwords,
            ),
            (
                (
                    "flurry_gateway_keys_in_doubt_total",
                    "Keys whose last writes by an earlier owner may be lost.",
                ),
                self.dispatcher.losses.doubts,
            ),
            (
                (
                    "flurry_gateway_losses_total",
                    "Commands on keys of which an acknowledged write is lost.",
                ),
                self.dispatcher.losses.losses,
            ),
            (
                (
                    "flurry_gateway_ended_values_total",
                    "Values that had ended, and were let go.",
                ),
                counts.swept,
            ),
        ] {
            page.counter(name, &[], number);
        }
    }

    fn clock_jumped(&mut self, now: MonoNs) {
        self.dispatcher.owner.clock_jumped(now);
    }

    fn timeout(&mut self, now: MonoNs) {
        self.dispatcher.owner.timeout(now);
        self.tick(now);
    }

    fn due(&self) -> MonoNs {
        if self.sockets.has_listed() || self.dispatcher.staged.has_freed() {
            return MonoNs(0);
        }
        // The gateway does not walk through keys before it knows the servers.
        let walks = self.dispatcher.owner.config().is_some();
        let others = [
            Some(self.tick),
            self.closing.as_ref().map(|it| it.until),
            self.dispatcher.due(),
            self.dispatcher.walks.due().filter(|_| walks),
        ];
        let next = others.into_iter().flatten().min();
        self.dispatcher.owner.due().min(next.unwrap_or(self.tick))
    }

    fn carry_out(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error> {
        self.dispatcher.owner.carry_out(now, link)
    }

    fn has_clients(&self) -> bool {
        self.sockets.has_events()
    }

    fn is_over(&self) -> bool {
        self.closing.as_ref().is_some_and(|it| it.is_over)
    }

    fn serve(&mut self, now: MonoNs, clients: bool, link: &mut Link) -> Result<usize, Error> {
        self.obey(now);
        self.go_on_closing(now);
        if clients && self.closing.is_none() {
            self.look(now);
        }
        self.deliver(now);
        let listed = self.sockets.take_listed();
        for number in &listed {
            self.attend(now, *number);
        }
        if let Some(epoch) = self.dispatcher.owner.fenced() {
            // By now the clients have received the outcomes of their operations under way.
            warn!(epoch = epoch.0, "another gateway has these slots");
            return Err(Error::Fenced { epoch });
        }
        for number in self.dispatcher.staged.take_freed() {
            self.sockets.list(number);
        }
        self.log_lost();
        self.walk(now, link);
        self.dispatcher.owner.carry_out(now, link)?;
        Ok(listed.len())
    }
}

/// Returns ranges of slots in order, as `0-511,1024-1279`. Contiguous ranges become one.
fn merged(mut ranges: Vec<RangeInclusive<u16>>) -> String {
    ranges.sort_unstable_by_key(|range| *range.start());
    let joined = ranges.chunk_by(|left, right| left.end() + 1 == *right.start());
    let texts: Vec<String> = joined
        .filter_map(|it| Some(format!("{}-{}", it.first()?.start(), it.last()?.end())))
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_ranges_of_slots_become_one() {
        assert_eq!(
            merged(vec![256..=511, 1_024..=1_279, 0..=255]),
            "0-511,1024-1279"
        );
        assert_eq!(merged(Vec::new()), "");
    }
}
