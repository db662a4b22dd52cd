package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import org.unruly.jvm.protocol.Protocols.Closing;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.StreamConfig;

/** TCP by java.nio: a channel that does not block, a direct buffer, and a selector to wait for room. */
final class NioSender implements Sender {
  private static final int CONNECT_MS = 10_000;

  private final SocketChannel channel = SocketChannel.open();
  private final Selector selector = Selector.open();
  private final ByteBuffer message;
  private final SelectionKey key;

  NioSender(StreamConfig config) throws IOException {
    message = ByteBuffer.allocateDirect(config.messageBytes());
    channel.setOption(StandardSocketOptions.TCP_NODELAY, false);
    channel.configureBlocking(false);
    channel.bind(config.listen());
    key = channel.register(selector, SelectionKey.OP_CONNECT);
  }

  @Override
  public int port() {
    return channel.socket().getLocalPort();
  }

  @Override
  public int meet(InetSocketAddress peer) throws IOException {
    if (!channel.connect(peer)) {
      selector.select(CONNECT_MS);
      if (!channel.finishConnect()) {
        throw new ConnectException("no answer in " + CONNECT_MS + " ms");
      }
    }
    selector.selectedKeys().clear();
    key.interestOps(SelectionKey.OP_WRITE);
    return 2;
  }

  @Override
  public ByteBuffer message() {
    return message;
  }

  @Override
  public void send() throws IOException {
    message.clear();
    channel.write(message);
    while (message.hasRemaining()) {
      selector.select();
      selector.selectedKeys().clear();
      if (!channel.isOpen()) {
        throw new ClosedChannelException();
      }
      channel.write(message);
    }
  }

  @Override
  public void wake() {
    Closing.quietly(channel);
    // its end wakes who waits for it; the channel's does not
    Closing.quietly(selector);
  }

  @Override
  public void close() {
    wake();
  }
}
