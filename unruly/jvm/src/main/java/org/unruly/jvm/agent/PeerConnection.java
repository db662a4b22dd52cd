package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.EventLoop;
import io.netty.util.concurrent.Future;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.unruly.jvm.Problem;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Codec.Stamps;
import org.unruly.jvm.agent.OutcomeReporter.Failure;
import org.unruly.jvm.agent.RequestQueue.Request;
import org.unruly.jvm.foreign.Parent.Command;

/**
 * A connection to one peer: sends each request at its scheduled time, reports the outcome and reconnects with back-off.
 * All methods run on one event loop.
 *
 * <p>A message is written only after the kernel has taken all of the earlier one. The stamp taken before the write is
 * therefore the send time of its first byte, and requests queue here while the socket is full.
 */
final class PeerConnection {
  /** Pause before the first reconnect, ns. It doubles up to {@link #BACKOFF_NS_MAX}. */
  private static final long BACKOFF_NS_MIN = 20_000_000;

  private static final long BACKOFF_NS_MAX = 2_000_000_000;

  /** Largest number of requests before replies are read again. After a pause of this process, a longer burst would delay the
   * replies. */
  private static final int BURST_MAX = 16;

  private final PeerConnector dial;
  private final Peer peer;
  private final Codec codec;
  private final RequestQueue requests;
  private final OutcomeReporter outcomes;
  private final EventLoop loop;
  private State state = State.DOWN;
  private Failure down = Failure.DISCONNECTED;
  private Channel channel;
  private long backoffNs = BACKOFF_NS_MIN;
  private int unsent;
  private boolean bursting;
  private Future<?> timer;
  private long timerNs;

  PeerConnection(Peer peer, AgentConfig config, OutcomeReporter outcomes, EventLoop loop) {
    this.peer = peer;
    this.outcomes = outcomes;
    this.loop = loop;
    codec = config.codec();
    requests = new RequestQueue(config.timeoutNs());
    dial = new PeerConnector(peer, codec, loop, this);
  }

  /** Connects or reconnects. */
  void connect() {
    if (state == State.DOWN) {
      state = State.CONNECTING;
      ChannelFuture made = dial.connect();
      channel = made.channel();
      // a channel that could not be created reports that on another thread
      made.addListener(future -> inLoop(() -> connected(made)));
    }
  }

  private void inLoop(Runnable next) {
    if (loop.inEventLoop()) {
      next.run();
    } else {
      loop.execute(next);
    }
  }

  /** Schedules a request. */
  void add(Request ask) {
    requests.add(ask, System.nanoTime());
  }

  /** Sends the requests whose scheduled time has passed and sets the timer for the next one. */
  void sendDue() {
    long nowNs = System.nanoTime();
    if (state == State.OPEN) {
      bursting = true;
      burst(nowNs);
      bursting = false;
    }
    // not else: the burst may have broken the connection
    if (state == State.DOWN) {
      for (Request due = requests.take(nowNs); due != null; due = requests.take(nowNs)) {
        outcomes.failed(due.ticket(), down);
      }
    }
    outcomes.flush();
    awaitNext();
  }

  /** Handles a complete reply. */
  void replied(ByteBuf reply, int bytes, long receivedNs) {
    long ticket = Head.of(reply).request();
    if (peer.datagrams()) {
      // a UDP socket is always connected; only a reply shows that the peer is there
      backoffNs = BACKOFF_NS_MIN;
    }
    if (ticket != Head.GREETING) {
      requests.ended(ticket);
      outcomes.reply(ticket, receivedNs, Stamps.of(reply), bytes);
    }
  }

  /** Sends the collected outcomes to the agent. */
  void flush() {
    outcomes.flush();
  }

  /** Handles a broken or failed connection: fails its open requests and schedules a reconnect. */
  void broken(Channel which, Failure failure) {
    if (which != channel) {
      return;
    }
    state = State.DOWN;
    channel = null;
    unsent = 0;
    down = failure == Failure.REFUSED ? failure : Failure.DISCONNECTED;
    if (which.isRegistered()) {
      which.close();
    }
    requests.endAll(System.nanoTime()).forEach(ticket -> outcomes.failed(ticket, failure));
    outcomes.flush();
    loop.schedule(this::connect, backoffNs, TimeUnit.NANOSECONDS);
    backoffNs = Math.min(2 * backoffNs, BACKOFF_NS_MAX);
    awaitNext();
  }

  /** Closes the connection without a reconnect. */
  void close() {
    state = State.CLOSED;
    cancel();
    if (channel != null) {
      Channel last = channel;
      channel = null;
      last.close();
    }
  }

  private void connected(ChannelFuture made) {
    if (made.channel() != channel) {
      made.channel().close();
    } else if (made.isSuccess()) {
      state = State.OPEN;
      backoffNs = peer.datagrams() ? backoffNs : BACKOFF_NS_MIN;
      // identifies this client to the server before the first request
      channel.writeAndFlush(request(channel, Head.GREETING, 0));
      sendDue();
    } else {
      broken(channel, PeerConnector.isRefused(made.cause()) ? Failure.REFUSED : Failure.RESET);
    }
  }

  private void burst(long nowNs) {
    int most = peer.datagrams() ? 1 : BURST_MAX;
    int asked = 0;
    while (asked < BURST_MAX && unsent == 0 && state == State.OPEN) {
      // a write may break the connection
      Channel open = channel;
      List<PendingWrite> batch = give(open, most, nowNs);
      if (batch.isEmpty()) {
        return;
      }
      long sentNs = System.nanoTime();
      batch.forEach(pending -> pending.sentNs = sentNs);
      open.flush();
      asked += batch.size();
    }
  }

  /** Encodes the requests whose scheduled time has passed. The next flush sends them. */
  private List<PendingWrite> give(Channel open, int most, long nowNs) {
    List<PendingWrite> batch = new ArrayList<>();
    for (Request due = requests.take(nowNs); due != null; due = batch.size() < most ? requests.take(nowNs) : null) {
      PendingWrite pending = new PendingWrite(open, due);
      batch.add(pending);
      requests.opened(due);
      unsent++;
      open.write(request(open, due.ticket(), due.flags())).addListener(future -> written(pending, future));
    }
    return batch;
  }

  private void written(PendingWrite pending, Future<?> future) {
    if (pending.channel != channel) {
      // the connection is gone and its requests have failed
      return;
    }
    unsent--;
    long ticket = pending.ask.ticket();
    if (future.isSuccess()) {
      outcomes.sent(ticket, pending.sentNs, codec.requestBytes(pending.ask.flags()));
    } else if (peer.datagrams() && PeerConnector.isRefused(future.cause())) {
      broken(channel, Failure.REFUSED);
    } else if (peer.datagrams()) {
      requests.ended(ticket);
      outcomes.failed(ticket, Failure.SEND);
    }
    // over TCP the connection breaks, and with it all its requests
    if (!bursting) {
      sendDue();
    }
  }

  private ByteBuf request(Channel open, long number, int flags) {
    ByteBuf bytes = open.alloc().ioBuffer(codec.requestBytes(flags));
    codec.writeRequest(bytes, peer.head(number, flags));
    return bytes;
  }

  private void awaitNext() {
    long nextNs = requests.nextNs();
    boolean waits = state == State.DOWN || state == State.OPEN && unsent == 0;
    if (!waits || nextNs == Long.MAX_VALUE) {
      // the next completed write or added request sends then
      return;
    }
    if (timer == null || timerNs > nextNs) {
      cancel();
      timerNs = nextNs;
      timer = loop.schedule(this::ring, Math.max(0, nextNs - System.nanoTime()), TimeUnit.NANOSECONDS);
    }
  }

  private void ring() {
    timer = null;
    sendDue();
  }

  private void cancel() {
    if (timer != null) {
      timer.cancel(false);
      timer = null;
    }
  }

  private enum State {
    DOWN,
    CONNECTING,
    OPEN,
    CLOSED
  }

  /** A message that the kernel has not taken yet. */
  private static final class PendingWrite {
    private final Channel channel;
    private final Request ask;
    private long sentNs;

    private PendingWrite(Channel channel, Request ask) {
      this.channel = channel;
      this.ask = ask;
    }
  }

  /**
   * The peer of one connection.
   *
   * @param server number of its server
   * @param client number of this client
   * @param address address of its server
   * @param datagrams true for UDP, false for TCP
   */
  record Peer(int server, int client, InetSocketAddress address, boolean datagrams) {
    private static final int ID_MAX = 0xFFFF;
    private static final int PORT_MAX = 0xFFFF;

    /** Returns the peer in the fields of a {@code ROUTE} record. */
    static Peer of(long[] fields) {
      int server = (int) within("server", fields[0], 0, ID_MAX);
      int client = (int) within("client", fields[1], 0, ID_MAX);
      long address = within("address", fields[2], 0, 0xFFFF_FFFFL);
      long port = within("port", fields[3], 1, PORT_MAX);
      return new Peer(server, client, Command.address(address, port), within("transport", fields[4], 0, 1) == 1);
    }

    /** Returns the head of a request to this peer. */
    Head head(long request, int flags) {
      return new Head(flags, request, client, server);
    }

    private static long within(String name, long value, long least, long most) {
      if (value < least || value > most) {
        String wrong = "the " + name + " of a route is " + value;
        throw new Problem("agent", wrong, "from " + least + " to " + most, "see unruly/schema/foreign.md");
      }
      return value;
    }
  }
}
