package org.unruly.systems;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Iterator;
import org.unruly.jvm.Options;

/**
 * Channels of java.nio that do not block, and selectors; the messages are those of {@link TcpEcho}.
 *
 * <p>One thread of the server has all connections, each with a direct buffer.
 */
final class NioEcho implements EchoSystem {
  private static final int HEAD = TcpEcho.HEAD;
  private static final int ROOM = 1 << 16;

  @Override
  public void serve(Options options) throws IOException {
    InetAddress host = InetAddress.getByName(options.text("host"));
    int port = EchoSystem.port(options);
    Selector selector = Selector.open();
    ServerSocketChannel server = ServerSocketChannel.open();
    server.bind(new InetSocketAddress(host, port), TcpEcho.BACKLOG);
    server.configureBlocking(false);
    server.register(selector, SelectionKey.OP_ACCEPT);
    Thread thread = new Thread(() -> serve(selector), "selector");
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    String host = options.text("host");
    int port = EchoSystem.port(options);
    return () -> new NioConnection(new InetSocketAddress(host, port), timeoutNs);
  }

  private static void serve(Selector selector) {
    while (true) {
      try {
        selector.select();
      } catch (IOException thrown) {
        System.err.println("jvm-nio: the selector failed: " + thrown.getMessage());
      }
      Iterator<SelectionKey> keys = selector.selectedKeys().iterator();
      while (keys.hasNext()) {
        SelectionKey key = keys.next();
        keys.remove();
        try {
          if (key.isAcceptable()) {
            accept(key, selector);
          } else {
            echo(key);
          }
        } catch (IOException | OutOfMemoryError thrown) {
          System.err.println("jvm-nio: a connection ended: " + thrown.getMessage());
          if (key.attachment() != null) {
            close((SocketChannel) key.channel());
          }
        }
      }
    }
  }

  private static void accept(SelectionKey key, Selector selector) throws IOException {
    SocketChannel channel = ((ServerSocketChannel) key.channel()).accept();
    if (channel == null) {
      return;
    }
    try {
      channel.configureBlocking(false);
      channel.socket().setTcpNoDelay(true);
      channel.register(selector, SelectionKey.OP_READ, new Frame());
    } catch (IOException | OutOfMemoryError thrown) {
      close(channel);
      throw thrown;
    }
  }

  /** Reads once; when a message is whole, writes as much of it as the kernel takes. */
  private static void echo(SelectionKey key) throws IOException {
    SocketChannel channel = (SocketChannel) key.channel();
    Frame frame = (Frame) key.attachment();
    if (key.isReadable()) {
      if (!frame.read(channel)) {
        channel.close();
        return;
      }
      if (!frame.isWhole()) {
        return;
      }
      frame.buffer.flip();
    }
    channel.write(frame.buffer);
    if (frame.buffer.hasRemaining()) {
      key.interestOps(SelectionKey.OP_WRITE);
    } else {
      frame.buffer.clear();
      key.interestOps(SelectionKey.OP_READ);
    }
  }

  private static void close(SocketChannel channel) {
    try {
      channel.close();
    } catch (IOException thrown) {
      // it is of no use any more, closed or not
    }
  }

  /** A message, in a buffer that grows with the bytes that arrive, not with a claimed length. */
  private static final class Frame {
    private ByteBuffer buffer = ByteBuffer.allocateDirect(ROOM);

    /** Reads once; returns false if the connection ended before a message. */
    boolean read(SocketChannel channel) throws IOException {
      if (!buffer.hasRemaining()) {
        long most = (long) HEAD + TcpEcho.bounded(buffer.getInt(0));
        ByteBuffer larger = ByteBuffer.allocateDirect((int) Math.min(most, 2L * buffer.capacity()));
        buffer = larger.put(buffer.flip());
      }
      int read = channel.read(buffer);
      if (read < 0 && buffer.position() > 0) {
        throw new EOFException("it ended within a message");
      }
      return read >= 0;
    }

    /** Returns true if the message is whole. */
    boolean isWhole() throws IOException {
      if (buffer.position() < HEAD) {
        return false;
      }
      int whole = HEAD + TcpEcho.bounded(buffer.getInt(0));
      if (buffer.position() > whole) {
        throw new IOException("more bytes than the message has came before its reply was sent");
      }
      return buffer.position() == whole;
    }
  }

  /** A channel with a selector that waits until the channel is ready. */
  private static final class NioConnection extends Connection {
    private final Selector selector = Selector.open();
    private final SocketChannel channel = SocketChannel.open();
    private final SelectionKey key;
    private final long timeoutNs;
    private final Frame reply = new Frame();
    private ByteBuffer message = ByteBuffer.allocateDirect(ROOM);
    private byte[] echo = new byte[ROOM];

    private NioConnection(InetSocketAddress server, long timeoutNs) throws IOException, Failure {
      this.timeoutNs = timeoutNs;
      try {
        channel.configureBlocking(false);
        key = channel.register(selector, 0);
        channel.connect(server);
        await(SelectionKey.OP_CONNECT, System.nanoTime() + timeoutNs);
        channel.finishConnect();
        channel.socket().setTcpNoDelay(true);
      } catch (IOException | Failure thrown) {
        close();
        throw thrown;
      }
    }

    @Override
    void call(byte[] payload) throws IOException, Failure {
      long untilNs = System.nanoTime() + timeoutNs;
      if (message.capacity() < HEAD + payload.length) {
        message = ByteBuffer.allocateDirect(HEAD + payload.length);
      }
      message.clear().putInt(payload.length).put(payload).flip();
      channel.write(message);
      while (message.hasRemaining()) {
        await(SelectionKey.OP_WRITE, untilNs);
        channel.write(message);
      }
      reply.buffer.clear();
      while (!reply.isWhole()) {
        await(SelectionKey.OP_READ, untilNs);
        if (!reply.read(channel)) {
          throw new EOFException("the server closed the connection");
        }
      }
      int length = reply.buffer.position() - HEAD;
      if (echo.length < length) {
        echo = new byte[length];
      }
      reply.buffer.get(HEAD, echo, 0, length);
      keep(echo, 0, length);
    }

    private void await(int operation, long untilNs) throws IOException, Failure {
      key.interestOps(operation);
      long leftMs = (untilNs - System.nanoTime()) / 1_000_000 + 1;
      if (leftMs <= 0 || selector.select(leftMs) == 0) {
        throw Failure.timeout(timeoutNs);
      }
      selector.selectedKeys().clear();
    }

    @Override
    boolean survivesTimeout() {
      return false;
    }

    @Override
    public void close() {
      NioEcho.close(channel);
      try {
        selector.close();
      } catch (IOException thrown) {
        // it is of no use any more, closed or not
      }
    }
  }
}
