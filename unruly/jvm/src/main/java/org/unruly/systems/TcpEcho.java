package org.unruly.systems;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.unruly.jvm.Options;

/**
 * Plain sockets of java.net: each message is its length in 4 bytes, and then its bytes.
 *
 * <p>It is the floor that the blocking systems are compared with: a thread for each connection, one
 * write for each message.
 */
final class TcpEcho implements EchoSystem {
  /** Bytes of the length before a message. */
  static final int HEAD = 4;

  /** Waiting connections that the kernel keeps. */
  static final int BACKLOG = 1_024;

  private static final int ROOM = 1 << 16;

  @Override
  public void serve(Options options) throws IOException {
    InetAddress host = InetAddress.getByName(options.text("host"));
    ServerSocket server = new ServerSocket(EchoSystem.port(options), BACKLOG, host);
    start("accept", () -> accept(server));
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    String host = options.text("host");
    int port = EchoSystem.port(options);
    return () -> new TcpConnection(new InetSocketAddress(host, port), timeoutNs);
  }

  private static void start(String name, Runnable task) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.start();
  }

  private static void accept(ServerSocket server) {
    while (true) {
      try {
        Socket socket = server.accept();
        start("echo", () -> echo(socket));
      } catch (IOException | OutOfMemoryError thrown) {
        System.err.println("jvm-tcp: a connection was not accepted: " + thrown.getMessage());
      }
    }
  }

  private static void echo(Socket socket) {
    try (socket) {
      socket.setTcpNoDelay(true);
      Frame frame = new Frame();
      while (frame.read(socket.getInputStream())) {
        socket.getOutputStream().write(frame.room, 0, HEAD + frame.length);
      }
    } catch (IOException | OutOfMemoryError thrown) {
      System.err.println("jvm-tcp: a connection ended: " + thrown.getMessage());
    }
  }

  /** A message, in an array that grows with the bytes that arrive and not with a claimed length. */
  private static final class Frame {
    private byte[] room = new byte[ROOM];
    private int length;

    /** Reads a message; returns false if the connection ended before it. */
    boolean read(InputStream in) throws IOException {
      int filled = 0;
      int wanted = HEAD;
      while (filled < wanted) {
        if (filled == room.length) {
          room = Arrays.copyOf(room, (int) Math.min(wanted, 2L * room.length));
        }
        int read = in.read(room, filled, Math.min(room.length, Math.max(wanted, ROOM)) - filled);
        if (read < 0 && filled == 0) {
          return false;
        }
        if (read < 0) {
          throw new EOFException("it ended within a message");
        }
        filled += read;
        if (wanted == HEAD && filled >= HEAD) {
          length = ByteBuffer.wrap(room).getInt();
          wanted = HEAD + bounded(length);
        }
      }
      if (filled > wanted) {
        throw new IOException("more bytes than the message has came before its reply was sent");
      }
      return true;
    }
  }

  /** Returns the length of a message if it is allowed, and throws an exception otherwise. */
  static int bounded(int length) throws IOException {
    if (length < 0 || length > MAX_BYTES) {
      String claimed = Integer.toUnsignedString(length);
      throw new IOException("a message of " + claimed + " bytes; the most is " + MAX_BYTES);
    }
    return length;
  }

  /** A socket that waits for one reply at a time. */
  private static final class TcpConnection extends Connection {
    private final Socket socket = new Socket();
    private final InputStream in;
    private final OutputStream out;
    private final Frame reply = new Frame();
    private byte[] message = new byte[ROOM];

    private TcpConnection(InetSocketAddress server, long timeoutNs) throws IOException {
      int timeoutMs = EchoSystem.millis(timeoutNs);
      try {
        socket.connect(server, timeoutMs);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(timeoutMs);
        in = socket.getInputStream();
        out = socket.getOutputStream();
      } catch (IOException thrown) {
        socket.close();
        throw thrown;
      }
    }

    @Override
    void call(byte[] payload) throws IOException {
      if (message.length < HEAD + payload.length) {
        message = new byte[HEAD + payload.length];
      }
      ByteBuffer.wrap(message).putInt(payload.length).put(payload);
      out.write(message, 0, HEAD + payload.length);
      if (!reply.read(in)) {
        throw new EOFException("the server closed the connection");
      }
      keep(reply.room, HEAD, reply.length);
    }

    @Override
    boolean survivesTimeout() {
      return false;
    }

    @Override
    public void close() {
      try {
        socket.close();
      } catch (IOException thrown) {
        // it is of no use any more, closed or not
      }
    }
  }
}
