package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.util.Arrays;
import org.jgroups.Message;
import org.jgroups.View;
import org.unruly.jvm.protocol.JGroupsMember.HeadedMessage;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.Header;
import org.unruly.jvm.stream.StreamConfig;

/** JGroups: each message to the whole group, in the sender's order, with its own flow control. */
final class JGroupsSender implements Sender {
  private final String protocol;
  private final StreamConfig config;
  private final byte[] bytes;
  private final ByteBuffer message;
  private volatile JGroupsMember member;
  private volatile boolean closed;

  JGroupsSender(String protocol, StreamConfig config) {
    this.protocol = protocol;
    this.config = config;
    bytes = new byte[config.messageBytes()];
    message = ByteBuffer.wrap(bytes);
  }

  @Override
  public int port() {
    return -1;
  }

  @Override
  public int meet(InetSocketAddress peer) throws IOException {
    JGroupsMember joining = new JGroupsMember(protocol, config, peer);
    member = joining;
    joining.join(
        new org.jgroups.Receiver() {
          @Override
          public void viewAccepted(View view) {
            joining.see(view);
          }

          @Override
          public void receive(Message message) {
            // readers send nothing else
            joining.serve(message.getSrc());
          }
        });
    return joining.awaitAll();
  }

  @Override
  public ByteBuffer message() {
    return message;
  }

  @Override
  public void send() throws IOException {
    if (closed) {
      throw new ClosedChannelException();
    }
    checkReaders();
    // to the others only: a writer reads nothing
    Message headed = new HeadedMessage(Arrays.copyOf(bytes, Header.BYTES), bytes);
    try {
      member.channel().send(headed.setFlag(Message.TransientFlag.DONT_LOOPBACK));
    } catch (Exception thrown) {
      throw new IOException(thrown.toString(), thrown);
    }
  }

  private void checkReaders() throws IOException {
    if (member.hasLeft()) {
      throw new IOException("a reader left the group");
    }
  }

  /** Waits until each reader reports that it has the end: messages under way may have to be sent again. */
  @Override
  public void settle(long untilNs) throws IOException {
    int served = member.awaitServed(untilNs);
    checkReaders();
    if (served < config.readers() && !closed) {
      throw new IOException("only " + served + " of " + config.readers() + " readers reported that they have the end");
    }
  }

  @Override
  public void wake() {
    closed = true;
    if (member != null) {
      member.wake();
      // a send that waits for credits ends only with its channel
      member.channel().close();
    }
  }

  @Override
  public void close() {
    closed = true;
    if (member != null) {
      member.close();
    }
  }
}
