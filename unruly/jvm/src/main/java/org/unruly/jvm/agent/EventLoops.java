package org.unruly.jvm.agent;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.util.concurrent.TimeUnit;
import org.unruly.jvm.Problem;

/**
 * The event loops of a member.
 *
 * @param asking one loop for all that asks: the agent's socket, the connections to peers, and the timers
 * @param serving as many as there are cores
 */
public record EventLoops(EventLoopGroup asking, EventLoopGroup serving) implements AutoCloseable {
  private static final long TIMEOUT_MS = 1000;

  /** The wait in ms from which Netty waits in epoll, whose end the kernel may delay by 50 us; 0: always a timerfd. */
  private static final String THRESHOLD = "io.netty.channel.epoll.epollWaitThreshold";

  /** Starts the event loops: on epoll, whose timers are exact, and which has Unix-domain sockets. */
  public static EventLoops start() {
    return start(Runtime.getRuntime().availableProcessors());
  }

  /** The same with so many that serve. */
  static EventLoops start(int serving) {
    // before any class of Netty's epoll is there, and unless the command line says otherwise
    System.setProperty(THRESHOLD, System.getProperty(THRESHOLD, "0"));
    if (!Epoll.isAvailable()) {
      String hint = "the class path needs jvm/target/lib/*, and java.io.tmpdir a place where libraries may be run from";
      Throwable cause = Epoll.unavailabilityCause();
      String wrong = "epoll is not available: " + cause;
      throw new Problem("netty", wrong, "Linux on x86-64 or arm64 with Netty's native library", hint, cause);
    }
    return new EventLoops(loops(1, "asking"), loops(serving, "serving"));
  }

  /** What is on its way in them is done first. */
  @Override
  public void close() {
    for (EventLoopGroup loops : new EventLoopGroup[] {asking, serving}) {
      loops.shutdownGracefully(0, TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }
    for (EventLoopGroup loops : new EventLoopGroup[] {asking, serving}) {
      loops.terminationFuture().awaitUninterruptibly(TIMEOUT_MS);
    }
  }

  private static EventLoopGroup loops(int count, String name) {
    return new EpollEventLoopGroup(count, new DefaultThreadFactory(name, true));
  }
}
