package org.unruly.jvm.protocol;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import org.unruly.jvm.protocol.Protocols.Closing;
import org.unruly.jvm.stream.Endpoint.Receiver;
import org.unruly.jvm.stream.Intake.Frames;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.StreamConfig;

/** TCP by java.nio: a selector over all connections, each with its direct buffer. */
final class NioReceiver implements Receiver {
  /** Connections at a time: one is the writer's, and a stranger's is let go at its first message. */
  private static final int CONNECTIONS_MAX = 8;

  private final ServerSocketChannel server = ServerSocketChannel.open();
  private final Selector selector = Selector.open();
  private final List<SocketChannel> connections = new ArrayList<>();
  private volatile boolean closed;

  NioReceiver(StreamConfig config) throws IOException {
    server.bind(config.listen());
    server.configureBlocking(false);
    server.register(selector, SelectionKey.OP_ACCEPT);
  }

  @Override
  public int port() {
    return server.socket().getLocalPort();
  }

  @Override
  public int meet(InetSocketAddress peer) {
    return 0;
  }

  @Override
  public void receive(Intake intake) throws IOException {
    try {
      while (!intake.isOver() && !closed) {
        selector.select();
        for (SelectionKey key : selector.selectedKeys()) {
          if (key.isAcceptable()) {
            accept(intake);
          } else {
            read(key, intake);
          }
        }
        selector.selectedKeys().clear();
      }
    } catch (ClosedSelectorException thrown) {
      // closed while it waited
    } catch (IOException thrown) {
      if (!closed) {
        throw thrown;
      }
    } finally {
      connections.forEach(Closing::quietly);
    }
  }

  private void accept(Intake intake) throws IOException {
    SocketChannel connection = server.accept();
    if (connection == null) {
      return;
    }
    connections.removeIf(one -> !one.isOpen());
    if (connections.size() >= CONNECTIONS_MAX) {
      connection.close();
      return;
    }
    connections.add(connection);
    connection.configureBlocking(false);
    connection.register(selector, SelectionKey.OP_READ, new Connection(intake));
  }

  private static void read(SelectionKey key, Intake intake) throws IOException {
    SocketChannel channel = (SocketChannel) key.channel();
    Connection connection = (Connection) key.attachment();
    try {
      int read = channel.read(connection.buffer);
      if (read < 0 && connection.frames.begun()) {
        throw new EOFException("the writer left without telling the end");
      }
      if (read < 0 || !connection.frames.take(connection.buffer)) {
        channel.close();
      }
    } catch (IOException thrown) {
      if (connection.frames.begun()) {
        throw thrown;
      }
      // a stranger's, and gone
      channel.close();
    }
  }

  @Override
  public void wake() {
    closed = true;
    Closing.quietly(server);
    Closing.quietly(selector);
  }

  @Override
  public void close() {
    wake();
  }

  private static final class Connection {
    private final ByteBuffer buffer;
    private final Frames frames;

    private Connection(Intake intake) {
      buffer = ByteBuffer.allocateDirect(Frames.roomBytes(intake.messageBytes()));
      frames = new Frames(intake);
    }
  }
}
