package org.unruly.jvm.stream;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;

/** One end of a stream. After {@link #meet}, one thread uses it. */
public interface Endpoint extends AutoCloseable {
  /** Returns the bound port, or -1 if the protocol has none yet. */
  int port();

  /**
   * Connects to the peer, if the protocol has connections.
   *
   * @return number of group members, or 0 if this end does not know it
   */
  int meet(InetSocketAddress peer) throws IOException;

  /** Interrupts a blocked call and every later one, from any thread. */
  void wake();

  /** Closes the endpoint. No thread may use it any more. */
  @Override
  void close();

  /** The reader's end of a stream. */
  public interface Receiver extends Endpoint {
    /** Receives until the stream ends or this endpoint is closed. */
    void receive(Intake intake) throws IOException;
  }

  /** The writer's end of a stream. */
  public interface Sender extends Endpoint {
    /** Returns the message buffer. The writer changes it in place before each {@link #send}. */
    ByteBuffer message();

    /** Sends the message and blocks under the protocol's back-pressure. */
    void send() throws IOException;

    /** Returns the number of end messages to send: more than one if messages may be lost. */
    default int endings() {
      return 1;
    }

    /** Waits until the peer has every sent message, as far as the protocol knows, or until a deadline. */
    default void settle(long untilNs) throws IOException {}
  }
}
