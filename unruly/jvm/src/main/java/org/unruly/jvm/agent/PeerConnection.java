package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.EventLoop;
import io.netty.util.concurrent.Future;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

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

  private final Dial dial;
  private final Peer peer;
  private final Codec codec;
  private final Asks asks;
  private final Answers answers;
  private final EventLoop loop;
  private State state = State.DOWN;
  private Failure down = Failure.DISCONNECTED;
  private Channel channel;
  private long backoffNs = BACKOFF_NS_MIN;
  private int unsent;
  private boolean bursting;
  private Future<?> timer;
  private long timerNs;

  PeerConnection(Peer peer, AgentTerms terms, Answers answers, EventLoop loop) {
    this.peer = peer;
    this.answers = answers;
    this.loop = loop;
    codec = terms.codec();
    asks = new Asks(terms.patienceNs());
    dial = new Dial(peer, codec, loop, this);
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
  void add(Ask ask) {
    asks.add(ask, System.nanoTime());
  }

  /** Asks what is due, and sees to it that the next is asked in its time. */
  void askDue() {
    long nowNs = System.nanoTime();
    if (state == State.OPEN) {
      bursting = true;
      burst(nowNs);
      bursting = false;
    }
    // not else: it may have broken just now
    if (state == State.DOWN) {
      for (Ask due = asks.take(nowNs); due != null; due = asks.take(nowNs)) {
        answers.failed(due.ticket(), down);
      }
    }
    answers.flush();
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
      asks.ended(ticket);
      answers.reply(ticket, receivedNs, Stamps.of(reply), bytes);
    }
  }

  /** Tells the agent what has come. */
  void flush() {
    answers.flush();
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
    asks.endAll(System.nanoTime()).forEach(ticket -> answers.failed(ticket, failure));
    answers.flush();
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
      askDue();
    } else {
      broken(channel, Dial.isRefused(made.cause()) ? Failure.REFUSED : Failure.RESET);
    }
  }

  private void burst(long nowNs) {
    int most = peer.datagrams() ? 1 : BURST_MAX;
    int asked = 0;
    while (asked < BURST_MAX && unsent == 0 && state == State.OPEN) {
      // what goes may break it
      Channel open = channel;
      List<Handing> batch = give(open, most, nowNs);
      if (batch.isEmpty()) {
        return;
      }
      long sentNs = System.nanoTime();
      batch.forEach(handing -> handing.sentNs = sentNs);
      open.flush();
      asked += batch.size();
    }
  }

  /** Encodes what is due; it goes with the flush. */
  private List<Handing> give(Channel open, int most, long nowNs) {
    List<Handing> batch = new ArrayList<>();
    for (Ask due = asks.take(nowNs); due != null; due = batch.size() < most ? asks.take(nowNs) : null) {
      Handing handing = new Handing(open, due);
      batch.add(handing);
      asks.opened(due);
      unsent++;
      open.write(request(open, due.ticket(), due.flags())).addListener(future -> handed(handing, future));
    }
    return batch;
  }

  private void handed(Handing handing, Future<?> future) {
    if (handing.channel != channel) {
      // of a connection that is gone, whose asks have failed
      return;
    }
    unsent--;
    long ticket = handing.ask.ticket();
    if (future.isSuccess()) {
      answers.sent(ticket, handing.sentNs, codec.requestBytes(handing.ask.flags()));
    } else if (peer.datagrams() && Dial.isRefused(future.cause())) {
      broken(channel, Failure.REFUSED);
    } else if (peer.datagrams()) {
      asks.ended(ticket);
      answers.failed(ticket, Failure.SEND);
    }
    // TCP's connection breaks with it, and all its asks
    if (!bursting) {
      askDue();
    }
  }

  private ByteBuf request(Channel open, long number, int flags) {
    ByteBuf bytes = open.alloc().ioBuffer(codec.requestBytes(flags));
    codec.writeRequest(bytes, peer.head(number, flags));
    return bytes;
  }

  private void awaitNext() {
    long nextNs = asks.nextNs();
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
    askDue();
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
  private static final class Handing {
    private final Channel channel;
    private final Ask ask;
    private long sentNs;

    private Handing(Channel channel, Ask ask) {
      this.channel = channel;
      this.ask = ask;
    }
  }
}
