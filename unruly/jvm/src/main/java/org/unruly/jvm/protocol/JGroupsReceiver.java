package org.unruly.jvm.protocol;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import org.jgroups.Address;
import org.jgroups.EmptyMessage;
import org.jgroups.Message;
import org.jgroups.View;
import org.jgroups.util.MessageBatch;
import org.unruly.jvm.stream.Endpoint;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.StreamConfig;

/** JGroups: messages come on threads of the group's, those of one sender one after the other. */
final class JGroupsReceiver implements Endpoint.Receiver, org.jgroups.Receiver {
  private final String protocol;
  private final StreamConfig config;
  private final CountDownLatch begun = new CountDownLatch(1);
  private final CountDownLatch over = new CountDownLatch(1);
  private final CountDownLatch left = new CountDownLatch(1);
  private volatile JGroupsMember member;
  private volatile Address writer;
  private volatile Intake intake;
  private volatile boolean closed;

  JGroupsReceiver(String protocol, StreamConfig config) throws IOException {
    this.protocol = protocol;
    this.config = config;
    if (!config.joins()) {
      join(null);
    }
  }

  private JGroupsMember join(InetSocketAddress first) throws IOException {
    JGroupsMember joining = new JGroupsMember(protocol, config, first);
    member = joining;
    joining.join(this);
    return joining;
  }

  @Override
  public int port() {
    return member == null ? -1 : member.port();
  }

  @Override
  public int meet(InetSocketAddress peer) throws IOException {
    return (config.joins() ? join(peer) : member).awaitAll();
  }

  @Override
  public void receive(Intake into) throws IOException {
    intake = into;
    begun.countDown();
    await(over);
    if (!into.isOver() && !closed) {
      throw new EOFException("the writer left the group without telling the end");
    }
    if (!closed) {
      tellServed();
      await(left);
    }
  }

  /** A reader that left without this would be one that died: others may still miss what only the writer has. */
  private void tellServed() throws IOException {
    try {
      member.channel().send(new EmptyMessage(writer));
    } catch (Exception thrown) {
      throw new IOException(thrown.toString(), thrown);
    }
  }

  @Override
  public void receive(Message message) {
    take(message);
  }

  @Override
  public void receive(MessageBatch batch) {
    for (Message message : batch) {
      take(message);
    }
  }

  @Override
  public void viewAccepted(View view) {
    member.see(view);
    // before the first message nobody knows who writes
    if (writer == null ? member.hasLeft() : !view.containsMember(writer)) {
      over.countDown();
      left.countDown();
    }
  }

  private void take(Message message) {
    if (writer == null) {
      writer = message.getSrc();
    }
    // a reader that begins late holds the group up, and loses nothing
    await(begun);
    Intake into = intake;
    if (into == null || !message.hasArray()) {
      return;
    }
    into.take(ByteBuffer.wrap(message.getArray()), message.getOffset(), message.getLength());
    if (into.isOver()) {
      over.countDown();
    }
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException thrown) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public void wake() {
    closed = true;
    begun.countDown();
    over.countDown();
    left.countDown();
    if (member != null) {
      member.wake();
    }
  }

  @Override
  public void close() {
    wake();
    if (member != null) {
      member.close();
    }
  }
}
