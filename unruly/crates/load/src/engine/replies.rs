//! Matches replies with their requests, judges them and records them.

use std::io;

use unruly_trace::{ColumnNs, ErrorKind, MonoNs, NULL_NS, Record, Status, monotonic};

use super::looks::{NOTED_OF_PARTS, NOTED_OF_REPLIES};
use super::{Engine, FAIL_OVERS_MAX, LIVE_RESPONSES_MAX, Layer, NOBODY, Part};
use crate::bins::bin;
use crate::pending::{Asked, Ended, Slot};
use crate::socket::{receive, receive_waiting};
use crate::target::{Answer, GREETING, Incoming, ProtocolError};
use crate::work::Task;

use super::routes::MOVES_MAX;

/// Longest beginning of a reply that is kept until the rest comes.
const PARTIAL_BYTES_MAX: usize = 33 << 20;

/// Most bytes kept of an error message.
const COMPLAINT_BYTES: usize = 300;

impl Engine<'_> {
    pub(super) fn serve_link(&mut self, link: usize, readable: bool, writable: bool) {
        if writable {
            if let Err(error) = self.links[link].finish_connect() {
                self.fail_link(link, &error);
                return;
            }
            self.flush(link);
        }
        if readable && self.links[link].is_open() {
            self.read_link(link, None);
        }
    }

    /// Reads a connection. With `wait`, when that begins and ends, it waits for bytes.
    pub(super) fn read_link(&mut self, link: usize, wait: Option<(MonoNs, MonoNs)>) {
        let Some(socket) = self.links[link].socket() else {
            return;
        };
        let receive = if wait.is_some() {
            receive_waiting
        } else {
            receive
        };
        let received = receive(socket, &mut self.scratch, &mut self.control_space);
        let received_ns = monotonic();
        if let Some(wait) = wait {
            // The receive was interrupted: bytes that have come are still in the socket.
            let unread = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
            let more = usize::from(received.as_ref().is_err_and(unread));
            self.looks.returned(wait, received_ns, more);
        }
        let received = match received {
            Ok(received) => received,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return;
            }
            Err(error) => return self.fail_link(link, &error),
        };
        if received.bytes == 0 && self.links[link].is_stream() {
            // By TLS a peer says that it has finished; without a word it was cut off (RFC 9112, 9.8).
            if !self.links[link].is_secure() {
                self.take_end(link, received_ns);
            }
            return self.fail_link(link, &io::Error::from(io::ErrorKind::ConnectionReset));
        }
        let kernel_ns = self
            .clock
            .column_of_kernel_stamp(received.stamp)
            .unwrap_or(NULL_NS);
        let scratch = std::mem::take(&mut self.scratch);
        let came = &scratch[..received.bytes];
        if self.links[link].is_secure() {
            self.read_secure(link, came, received_ns, kernel_ns);
        } else {
            self.take_bytes(link, came, received_ns, kernel_ns);
        }
        self.scratch = scratch;
    }

    /// Takes the bytes of a connection by TLS. A reply is received when the last bytes of its record
    /// are read: decrypting them is work of the generator, not of the server.
    fn read_secure(&mut self, link: usize, wire: &[u8], received_ns: MonoNs, kernel_ns: ColumnNs) {
        let mut message = Vec::new();
        let decrypted = self.links[link].decrypt(wire, received_ns, &mut message);
        // Also before an error a whole reply may have come.
        if !message.is_empty() {
            self.take_bytes(link, &message, received_ns, kernel_ns);
        }
        if self.links[link].has_queued() {
            self.flush(link);
        }
        if !self.links[link].is_open() {
            return;
        }
        match decrypted {
            Ok(false) => {}
            Ok(true) => {
                self.take_end(link, received_ns);
                self.fail_link(link, &io::Error::from(io::ErrorKind::ConnectionReset));
            }
            Err(error) => {
                let status = Status::Error(ErrorKind::Protocol);
                self.complain(status.name(), error.to_string().as_bytes());
                self.fail_link(link, &error);
            }
        }
    }

    /// Takes bytes that a target understands.
    fn take_bytes(&mut self, link: usize, fresh: &[u8], received_ns: MonoNs, kernel_ns: ColumnNs) {
        if !self.expects_bytes(link) {
            return;
        }
        let mut bytes = std::mem::take(&mut self.links[link].partial);
        let whole = if bytes.is_empty() {
            fresh
        } else {
            bytes.extend_from_slice(fresh);
            &bytes[..]
        };
        let used = self.decode_all(link, whole, received_ns, kernel_ns);
        match used {
            Ok(used) if whole.len() - used > PARTIAL_BYTES_MAX => {
                let wrong = ProtocolError::reply(&whole[used..], "the end of a reply");
                self.complain(
                    Status::Error(ErrorKind::Protocol).name(),
                    wrong.to_string().as_bytes(),
                );
                self.fail_link(link, &io::Error::new(io::ErrorKind::InvalidData, wrong));
            }
            // It failed while its replies were taken.
            Ok(_) if self.links[link].refuses().is_some() => {}
            Ok(used) if self.links[link].is_stream() => {
                let rest = whole.len() - used;
                self.links[link].partial = if bytes.is_empty() {
                    fresh[used..].to_vec()
                } else {
                    bytes.drain(..used);
                    bytes
                };
                self.lane_replied(link, rest);
            }
            // A datagram is one message, and any bytes after the message are noise.
            Ok(used) => self.outcome.strays += u64::from(used < whole.len()),
            Err(error) if self.links[link].is_stream() => {
                self.outcome.strays += 1;
                self.fail_link(link, &error);
            }
            Err(_) => self.outcome.strays += 1,
        }
    }

    fn decode_all(
        &mut self,
        link: usize,
        bytes: &[u8],
        received_ns: MonoNs,
        kernel_ns: ColumnNs,
    ) -> io::Result<usize> {
        let mut used = 0;
        while used < bytes.len() {
            let decoded = self.targets[link].decode(&bytes[used..]);
            let incoming = match decoded {
                Ok(Some(incoming)) => incoming,
                Ok(None) => break,
                Err(error) => {
                    let status = Status::Error(ErrorKind::Protocol);
                    self.complain(status.name(), error.to_string().as_bytes());
                    // Whole replies may stand before the broken bytes.
                    self.take_replies(link, received_ns, kernel_ns);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            used += incoming.bytes;
            self.take(link, &incoming, received_ns, kernel_ns);
            if self.targets[link].wants_tls() {
                self.start_tls(link, &bytes[used..])?;
                break;
            }
            if incoming.closes {
                if let Some(lane) = self.lanes.get_mut(link) {
                    lane.closes = true;
                }
                break;
            }
        }
        if self.targets[link].has_streams() {
            self.serve_streams(link, received_ns, kernel_ns);
        }
        Ok(used)
    }

    /// Begins TLS on a connection whose server has agreed. Bytes that came with the consent are in the
    /// clear, and somebody else may have put them there.
    fn start_tls(&mut self, link: usize, rest: &[u8]) -> io::Result<()> {
        if !rest.is_empty() {
            let wrong = ProtocolError::reply(rest, "nothing in the clear after the consent to TLS");
            let status = Status::Error(ErrorKind::Protocol);
            self.complain(status.name(), wrong.to_string().as_bytes());
            return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
        }
        self.drain(link);
        self.links[link].start_tls()?;
        self.targets[link].tls_began();
        self.drain(link);
        self.fresh.push(link);
        Ok(())
    }

    /// Takes the reply that ends where its connection ends, if there is one.
    fn take_end(&mut self, link: usize, received_ns: MonoNs) {
        let partial = std::mem::take(&mut self.links[link].partial);
        // Other bytes are no reply; the end of the connection fails the request.
        if let Ok(Some(incoming)) = self.targets[link].decode_end(&partial) {
            self.take(link, &incoming, received_ns, NULL_NS);
        }
        self.links[link].partial = partial;
    }

    pub(super) fn take(
        &mut self,
        link: usize,
        incoming: &Incoming<'_>,
        received_ns: MonoNs,
        kernel_ns: ColumnNs,
    ) {
        match incoming.answer {
            Answer::Failed(kind, words) => {
                self.complain(Status::Error(kind).name_with(incoming.code), words);
            }
            Answer::Wrong(words) => self.complain(Status::Wrong.name(), words),
            // Sibling values: their writers did not know of each other.
            Answer::Found(values) if self.work.is_some() && values.contains(&b' ') => {
                self.complain("siblings", b"a read found several values");
            }
            _ => {}
        }
        if let Answer::FailedOver(fail_over) = incoming.answer {
            if self.outcome.fail_overs.len() < FAIL_OVERS_MAX {
                self.outcome.fail_overs.push(fail_over);
            } else {
                self.outcome.fail_overs_left += 1;
            }
        } else if incoming.answer == Answer::Sent {
            self.was_sent(link, incoming);
        } else if incoming.answer == Answer::Token {
            self.part_came(
                link,
                incoming,
                received_ns,
                (Layer::FirstToken, Layer::Token),
            );
        } else if incoming.answer == Answer::Message {
            self.part_came(
                link,
                incoming,
                received_ns,
                (Layer::FirstMessage, Layer::Message),
            );
        } else if incoming.request != GREETING {
            self.replied(link, incoming, received_ns, kernel_ns);
        }
    }

    /// Returns the open copy that a reply on this connection belongs to.
    fn open_copy(&self, link: usize, incoming: &Incoming<'_>) -> Option<Slot> {
        let server = incoming.server.unwrap_or(self.peers[link].id);
        self.pending.find(incoming.request, server)
    }

    /// Who asks for us has sent a copy.
    fn was_sent(&mut self, link: usize, incoming: &Incoming<'_>) {
        let found = self.open_copy(link, incoming);
        let copy = found.and_then(|slot| self.pending.at(slot));
        // One that was given up meanwhile keeps what its row says.
        let (Some(copy), Some(sent_ns)) = (copy, incoming.sent_ns) else {
            return;
        };
        copy.asked.record.sent_ns = self.clock.column(sent_ns);
        copy.asked.record.sent_bytes = incoming.wire_bytes.unwrap_or(0);
        self.live.lag_ns = self.live.lag_ns.max(sent_ns - copy.asked.intended_ns);
    }

    /// A token or a message of a reply came: the first one, or another.
    fn part_came(
        &mut self,
        link: usize,
        incoming: &Incoming<'_>,
        received_ns: MonoNs,
        (first, other): (Layer, Layer),
    ) {
        let found = self.open_copy(link, incoming);
        let Some(copy) = found.and_then(|slot| self.pending.at(slot)) else {
            return;
        };
        let asked = &mut copy.asked;
        let (layer, since_ns) = match asked.part_ns.replace(received_ns) {
            None => (first, asked.intended_ns),
            Some(before_ns) => (other, before_ns),
        };
        let part = |layer, since_ns| Part {
            server: asked.record.server,
            request: asked.record.request,
            attempt: asked.record.attempt,
            layer,
            started_ns: self.clock.column(since_ns),
            ended_ns: self.clock.column(received_ns),
        };
        self.live.parts.push(part(layer, since_ns));
        // Another one of the same look has not waited longer than the one before it.
        if since_ns < received_ns
            && let Some(absent_ns) = self.looks.absent_since(received_ns, NOTED_OF_PARTS)
        {
            let delay = part(Layer::ReadDelay, absent_ns.max(since_ns));
            self.live.parts.push(delay);
        }
    }

    /// A copy was answered.
    fn replied(
        &mut self,
        link: usize,
        incoming: &Incoming<'_>,
        received_ns: MonoNs,
        kernel_ns: ColumnNs,
    ) {
        let found = self.open_copy(link, incoming).filter(|slot| {
            self.pending
                .at(*slot)
                .is_some_and(|it| it.asked.link == link)
        });
        let Some(copy) = found.and_then(|slot| self.pending.remove(slot)) else {
            self.outcome.strays += 1;
            return;
        };
        // One that was noted under its server keeps it: the note and the row must be of one copy.
        let stays = copy.timed_out || copy.asked.record.supersedes;
        if !stays && copy.asked.moves < MOVES_MAX {
            match incoming.answer {
                Answer::Moved => return self.send_elsewhere(copy.asked, None),
                Answer::Ask(place) => return self.send_elsewhere(copy.asked, Some(place)),
                _ => {}
            }
        }
        // Who asks for us says when a reply came: without that, none did, and only the word of it is here.
        let came = incoming.received_ns.is_some() || !self.links[link].tells_when_sent();
        if incoming.received_ns.is_none() {
            self.note_absence(&copy.asked, received_ns);
        }
        let mut record = if came {
            self.heard(&copy.asked.record, incoming, received_ns, kernel_ns)
        } else {
            copy.asked.record
        };
        if copy.timed_out {
            // Its request has ended already; only the row was open.
            record.status = match incoming.answer {
                // That an earlier request was lost is worse than that this one is late.
                Answer::Wrong(_) => Status::Wrong,
                _ => Status::Timeout,
            };
            if self.came_in_time(&copy.asked, incoming) {
                self.take_timeout_back(&mut record, copy.asked.group);
            }
            self.count(&record);
            self.recorder.record(&record);
            self.pending.release(copy.asked.group);
            return;
        }
        // A copy that was sent on stands behind younger ones in the line of time limits.
        let late = received_ns - copy.asked.since_ns >= self.options.timeout_ns;
        record.status = match (&self.work, &copy.asked.task, incoming.answer) {
            _ if late && copy.asked.moves > 0 => Status::Timeout,
            (Some(work), Some(task), answer) => work.judge(task, answer),
            (_, _, Answer::Failed(kind, _)) => Status::Error(kind),
            (_, _, Answer::Wrong(_)) => Status::Wrong,
            (_, _, Answer::Refused) => Status::Refused,
            _ => Status::Ok,
        };
        self.finish(record, &copy.asked);
    }

    /// Notes that a reply may have waited unread.
    fn note_absence(&mut self, asked: &Asked, received_ns: MonoNs) {
        let absent = self.looks.absent_since(received_ns, NOTED_OF_REPLIES);
        // One that was due after the absence was not delayed by it.
        let own = absent.map(|absent_ns| absent_ns.max(asked.intended_ns));
        let Some(absent_ns) = own.filter(|own| received_ns - *own > NOTED_OF_REPLIES) else {
            return;
        };
        self.live.parts.push(Part {
            server: asked.record.server,
            request: asked.record.request,
            attempt: asked.record.attempt,
            layer: Layer::ReadDelay,
            started_ns: self.clock.column(absent_ns),
            ended_ns: self.clock.column(received_ns),
        });
    }

    /// True if a generator that receives for us took a sound reply before the timeout: its stamp
    /// decides, not how long its message to us was under way.
    fn came_in_time(&self, asked: &Asked, incoming: &Incoming<'_>) -> bool {
        let took_ns = incoming.received_ns.map(|at_ns| at_ns - asked.intended_ns);
        let sound = !matches!(
            incoming.answer,
            Answer::Failed(..) | Answer::Wrong(_) | Answer::Refused
        );
        asked.task.is_none() && sound && took_ns.is_some_and(|ns| ns < self.options.timeout_ns)
    }

    /// Makes a copy that was counted as timed out an answered one, in its row and in the counts.
    fn take_timeout_back(&mut self, record: &mut Record, group: u32) {
        record.status = Status::Ok;
        if let Some(count) = self.live.failed.get_mut(Status::Timeout.name()) {
            *count = count.saturating_sub(1);
        }
        let ended = self.pending.answered_in_time(group);
        record.answered = ended.answers;
        if ended.request_over.is_some() {
            self.outcome.requests.unanswered -= 1;
            self.outcome.requests.answered += 1;
        }
    }

    /// The row of a copy with what its reply says.
    fn heard(
        &self,
        asked: &Record,
        incoming: &Incoming<'_>,
        received_ns: MonoNs,
        kernel_ns: ColumnNs,
    ) -> Record {
        let stamp = |at: ColumnNs| if at == ColumnNs(0) { NULL_NS } else { at };
        let stamps = incoming.stamps;
        // Whoever asked for us knows better when that was.
        let sent_ns = incoming.sent_ns.map(|at| self.clock.column(at));
        let received_ns = incoming.received_ns.unwrap_or(received_ns);
        let scheduled_ns = sent_ns.filter(|_| self.options.caller_schedules);
        // The bytes to the program are a report; the echo is as long as what the program sent.
        let echoed = incoming.wire_bytes.filter(|_| sent_ns.is_some());
        Record {
            intended_ns: scheduled_ns.unwrap_or(asked.intended_ns),
            sent_ns: sent_ns.unwrap_or(asked.sent_ns),
            sent_bytes: echoed.unwrap_or(asked.sent_bytes),
            received_ns: self.clock.column(received_ns),
            kernel_received_ns: kernel_ns,
            server_kernel_received_ns: stamp(stamps.kernel_received_ns),
            server_received_ns: stamp(stamps.received_ns),
            server_sent_ns: stamp(stamps.sent_ns),
            code: incoming.code,
            received_bytes: incoming
                .wire_bytes
                .unwrap_or_else(|| u32::try_from(incoming.bytes).unwrap_or(u32::MAX)),
            ..*asked
        }
    }

    /// Keeps what the other side says is wrong, once of each kind.
    fn complain(&mut self, kind: &'static str, words: &[u8]) {
        let known = self.outcome.complaints.entry(kind);
        let (count, _) = known.or_insert_with(|| {
            let words = String::from_utf8_lossy(&words[..words.len().min(COMPLAINT_BYTES)]);
            (0, words.trim().to_owned())
        });
        *count += 1;
    }

    /// Counts a copy that has ended in its bin, where a stop rule or a live view wants that.
    pub(super) fn count(&mut self, record: &Record) {
        if !self.options.bins || record.phase != super::MEASURED {
            return;
        }
        let ok = record.status == Status::Ok;
        let response_ns = ok.then(|| record.received_ns - record.intended_ns);
        let met = self.live.bins.entry((record.op, bin(response_ns)));
        *met.or_insert(0) += 1;
    }

    /// A copy ends here: the row is written and its request hears of it, unless it is tried again.
    pub(super) fn finish(&mut self, record: Record, asked: &Asked) {
        let ok = record.status == Status::Ok;
        if ok && self.live.responses_ns.len() < LIVE_RESPONSES_MAX {
            self.live
                .responses_ns
                .push(record.received_ns - record.intended_ns);
        }
        if !ok {
            *self.live.failed.entry(record.status.name()).or_insert(0) += 1;
        }
        if !ok && self.will_retry(&record, asked) {
            self.recorder.record(&record);
            return;
        }
        self.count(&record);
        self.task_ended(asked.task, record.status);
        let ended = self.pending.end(asked.group, ok);
        self.recorder.record(&Record {
            answered: ended.answers,
            ..record
        });
        self.pending.release(asked.group);
        self.request_over(asked.link, &ended);
    }

    pub(super) fn task_ended(&mut self, task: Option<Task>, status: Status) {
        if let (Some(work), Some(task)) = (&mut self.work, task) {
            work.ended(&task, status);
        }
    }

    pub(super) fn request_over(&mut self, link: usize, ended: &Ended) {
        let Some(answered) = ended.request_over else {
            return;
        };
        self.outcome.requests.answered += u64::from(answered);
        self.outcome.requests.unanswered += u64::from(!answered);
        if ended.session == NOBODY {
            return;
        }
        // A closed loop asks again when it was answered, or when there is someone to ask.
        let again_ns = match self.has_another(link) {
            true => MonoNs(0),
            false => self.links[link].retry_at_ns().unwrap_or_default(),
        };
        let at_ns = again_ns.max(monotonic());
        self.ended.push((ended.session, at_ns, answered));
    }
}
