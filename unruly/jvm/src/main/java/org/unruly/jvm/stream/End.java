package org.unruly.jvm.stream;

import java.io.IOException;
import java.net.InetSocketAddress;

/** One end of a stream: opened by its maker, told its peer, then used by one thread. */
public interface End extends AutoCloseable {
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
}
