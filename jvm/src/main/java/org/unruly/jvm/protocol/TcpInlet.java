package org.unruly.jvm.protocol;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import org.unruly.jvm.stream.Frames;
import org.unruly.jvm.stream.Inlet;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.Terms;

/** TCP by java.net: reads as much as there is into a large array. */
final class TcpInlet implements Inlet {
  private final ServerSocket server = new ServerSocket();
  private volatile Socket connection;
  private volatile boolean closed;

  TcpInlet(Terms terms) throws IOException {
    server.bind(terms.listen());
  }

  @Override
  public int port() {
    return server.getLocalPort();
  }

  @Override
  public int meet(InetSocketAddress peer) {
    return 0;
  }

  @Override
  public void receive(Intake intake) throws IOException {
    byte[] bytes = new byte[Frames.roomBytes(intake.messageBytes())];
    try {
      while (!intake.isOver() && !closed) {
        try (Socket accepted = server.accept()) {
          connection = accepted;
          receive(accepted.getInputStream(), bytes, intake);
        }
      }
    } catch (IOException thrown) {
      if (!closed) {
        throw thrown;
      }
    }
  }

  private static void receive(InputStream stream, byte[] bytes, Intake intake) throws IOException {
    Frames frames = new Frames(intake);
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    try {
      while (!intake.isOver()) {
        int read = stream.read(bytes, buffer.position(), buffer.remaining());
        if (read < 0 && frames.begun()) {
          throw new EOFException("the writer left without telling the end");
        }
        // whoever speaks of something else is let go, and the writer is waited for again
        if (read < 0 || !frames.take(buffer.position(buffer.position() + read))) {
          return;
        }
      }
    } catch (IOException thrown) {
      if (frames.begun()) {
        throw thrown;
      }
    }
  }

  @Override
  public void wake() {
    closed = true;
    Closing.quietly(server);
    Closing.quietly(connection);
  }

  @Override
  public void close() {
    wake();
  }
}
