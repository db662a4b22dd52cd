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
 * The way to one peer: asks when it is time, tells what comes of it, connects again with back-off. On one event loop.
 *
 * <p>Nothing is given to a channel while an earlier message is not wholly with the kernel: so the stamp taken before
 * a message is given is that of its first byte, and what waits for room waits here.
 */
final class PeerConnection {
  /** First pause before connecting again; doubles up to the most. */
  private static final long BACKOFF_NS_MIN = 20_000_000;

  private static final long BACKOFF_NS_MAX = 2_000_000_000;

  /** Asked before replies are looked at again: after a stop of ours they would be late by our doing. */
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

  /** Connects, for the first time or again. */
  void connect() {
    if (state == State.DOWN) {
      state = State.CONNECTING;
      ChannelFuture made = dial.connect();
      channel = made.channel();
      // a channel that could not even be made tells so on a thread of its own
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

  /** Has this asked in its time. */
  void add(Request ask) {
    requests.add(ask, System.nanoTime());
  }

  /** Asks what is due, and sees to it that the next is asked in its time. */
  void sendDue() {
    long nowNs = System.nanoTime();
    if (state == State.OPEN) {
      bursting = true;
      burst(nowNs);
      bursting = false;
    }
    // not else: it may have broken just now
    if (state == State.DOWN) {
      for (Request due = requests.take(nowNs); due != null; due = requests.take(nowNs)) {
        outcomes.failed(due.ticket(), down);
      }
    }
    outcomes.flush();
    awaitNext();
  }

  /** A reply has come, whole. */
  void replied(ByteBuf reply, int bytes, long receivedNs) {
    long ticket = Head.of(reply).request();
    if (peer.datagrams()) {
      // connected is what answers; a datagram socket is always so
      backoffNs = BACKOFF_NS_MIN;
    }
    if (ticket != Head.GREETING) {
      requests.ended(ticket);
      outcomes.reply(ticket, receivedNs, Stamps.of(reply), bytes);
    }
  }

  /** Tells the agent what has come. */
  void flush() {
    outcomes.flush();
  }

  /** A connection has broken, or could not be made: all that is open on it has failed. */
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

  /** The agent asks no more. */
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
      // so that we are no stranger before the first ask
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
      // what goes may break it
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

  /** Encodes what is due; it goes with the flush. */
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
      // of a connection that is gone, whose asks have failed
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
    // TCP's connection breaks with it, and all its asks
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
      // what makes room, and who adds, asks then
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

  /** A message on its way to the kernel. */
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
   * Whom a connection of the agent asks.
   *
   * @param server its number
   * @param client the number of who asks
   * @param address of its server
   * @param datagrams whether over UDP
   */
  record Peer(int server, int client, InetSocketAddress address, boolean datagrams) {
    private static final int ID_MAX = 0xFFFF;
    private static final int PORT_MAX = 0xFFFF;

    /** The peer of a record's fields. */
    static Peer of(long[] fields) {
      int server = (int) within("server", fields[0], 0, ID_MAX);
      int client = (int) within("client", fields[1], 0, ID_MAX);
      long address = within("address", fields[2], 0, 0xFFFF_FFFFL);
      long port = within("port", fields[3], 1, PORT_MAX);
      return new Peer(server, client, Command.address(address, port), within("transport", fields[4], 0, 1) == 1);
    }

    /** The head of a request to it. */
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
