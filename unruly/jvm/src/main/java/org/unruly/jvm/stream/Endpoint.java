package org.unruly.jvm.stream;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;

/** One end of a stream: opened by its maker, told its peer, then used by one thread. */
public interface Endpoint extends AutoCloseable {
  /** The bound port, or -1 when the protocol has none to tell. */
  int port();

  /**
   * The other side is there: connects to it where the protocol does.
   *
   * @return how many members the group has then, or 0 when this end has nothing to tell of it
   */
  int meet(InetSocketAddress peer) throws IOException;

  /** Has a call that waits, and every later one, end soon; from any thread. */
  void wake();

  /** Closes, once no thread uses it any more. */
  @Override
  void close();

  /** The reader's end of a stream. */
  public interface Receiver extends Endpoint {
    /** Receives until the intake is over, or this end is closed. */
    void receive(Intake intake) throws IOException;
  }

  /** The writer's end of a stream. */
  public interface Sender extends Endpoint {
    /** The message: its writer changes it in place, then has it sent. */
    ByteBuffer message();

    /** Sends the message; waits as the protocol's back-pressure has it wait. */
    void send() throws IOException;

    /** How often the end is told: more than once where messages may be lost. */
    default int endings() {
      return 1;
    }

    /** Waits until what was sent is safe without this end, as far as the protocol can tell, but not beyond a time. */
    default void settle(long untilNs) throws IOException {}
  }
}
