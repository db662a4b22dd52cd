package org.unruly.jvm.protocol;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import org.unruly.jvm.protocol.Protocols.Closing;
import org.unruly.jvm.stream.Endpoint.Receiver;
import org.unruly.jvm.stream.Intake.Frames;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.StreamConfig;

/**
 * TCP by java.net: reads as much as there is into a large array.
 *
 * <p>A writer may be silent for minutes before it begins, as a stranger may: each connection is read by a thread of its
 * own until one of them says a message of this stream. Then the others are closed.
 */
final class TcpReceiver implements Receiver {
  /** Connections that may be open before a stream is; one more closes the oldest. */
  private static final int CANDIDATES_MAX = 16;

  private final ServerSocket server = new ServerSocket();
  private final Deque<Socket> candidates = new ArrayDeque<>();
  private Socket stream;
  private boolean ended;
  private Throwable failure;
  private boolean closed;

  TcpReceiver(StreamConfig config) throws IOException {
    server.bind(config.listen());
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
    Thread accepting = new Thread(() -> accept(intake), "accept");
    accepting.setDaemon(true);
    accepting.start();
    synchronized (this) {
      try {
        while (!ended && !closed) {
          wait();
        }
      } catch (InterruptedException thrown) {
        Thread.currentThread().interrupt();
      }
      if (failure != null && !closed) {
        throw failure instanceof IOException thrown ? thrown : new IOException(failure.toString(), failure);
      }
    }
  }

  private void accept(Intake intake) {
    try {
      while (true) {
        Socket accepted = server.accept();
        if (!enter(accepted)) {
          Closing.quietly(accepted);
          continue;
        }
        Thread reading = new Thread(() -> read(accepted, intake), "read");
        reading.setDaemon(true);
        reading.start();
      }
    } catch (IOException thrown) {
      end(null, thrown);
    } catch (RuntimeException | Error thrown) {
      // nobody can come any more, who may be the writer
      fail(thrown);
    }
  }

  private synchronized boolean enter(Socket accepted) {
    if (stream != null || closed) {
      return false;
    }
    if (candidates.size() == CANDIDATES_MAX) {
      Closing.quietly(candidates.removeFirst());
    }
    return candidates.add(accepted);
  }

  private void read(Socket accepted, Intake intake) {
    Throwable thrown = null;
    try (accepted) {
      receive(accepted, intake);
    } catch (IOException caught) {
      thrown = caught;
    } catch (RuntimeException | Error caught) {
      fail(caught);
    }
    end(accepted, thrown);
  }

  private void receive(Socket accepted, Intake intake) throws IOException {
    InputStream input = accepted.getInputStream();
    byte[] bytes = new byte[Frames.roomBytes(intake.messageBytes())];
    Frames frames = new Frames(intake);
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    while (!intake.isOver()) {
      int read = input.read(bytes, buffer.position(), buffer.remaining());
      if (read < 0 && frames.begun()) {
        throw new EOFException("the writer left without telling the end");
      } else if (read < 0) {
        return;
      }
      buffer.position(buffer.position() + read);
      // a peer with another protocol is disconnected, and the receiver still waits for the writer
      if (!(frames.begun() ? frames.take(buffer) : begin(accepted, frames, buffer))) {
        return;
      }
    }
  }

  /** Takes the first bytes of a connection, one connection at a time. Returns false if it is not the stream's. */
  private synchronized boolean begin(Socket accepted, Frames frames, ByteBuffer buffer) {
    if (stream != null || !frames.take(buffer)) {
      return false;
    }
    if (frames.begun()) {
      stream = accepted;
      candidates.stream().filter(it -> it != accepted).forEach(Closing::quietly);
    }
    return true;
  }

  /** The end of a connection, or of accepting: a stranger's is nobody's. */
  private synchronized void end(Socket accepted, Throwable thrown) {
    candidates.remove(accepted);
    if (accepted == stream) {
      failure = failure == null ? thrown : failure;
      ended = true;
      notifyAll();
    }
  }

  /** Ends the stream with an error of the receiver itself, not of a connection; the first error stays. */
  private synchronized void fail(Throwable thrown) {
    failure = failure == null ? thrown : failure;
    ended = true;
    notifyAll();
  }

  @Override
  public synchronized void wake() {
    closed = true;
    Closing.quietly(server);
    candidates.forEach(Closing::quietly);
    notifyAll();
  }

  @Override
  public void close() {
    wake();
  }
}
