package org.unruly.apps;

import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/** A member of an application: it chooses operations, numbers them, and counts its writes. */
public final class Member {
  /** Members of this process so far: the seed of the next one's choices. */
  private static final AtomicLong COUNT = new AtomicLong();

  private final List<Operation> operations;
  private final int weights;
  private final long id = ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE);
  private final SplittableRandom random = new SplittableRandom(COUNT.incrementAndGet());
  private long number;
  private Tally done = new Tally(0, 0);
  private boolean isWrite;

  /**
   * Creates a member, which its application does not have yet.
   *
   * @param application the name of the application
   */
  public Member(String application) {
    operations = Applications.of(application).operations();
    weights = operations.stream().mapToInt(Operation::weight).sum();
  }

  /** Returns the bytes of the request that adds this member to the application. */
  public byte[] join() {
    return new Request(id, 0, 0, done, 0, Trace.NONE, new long[0]).bytes(0);
  }

  /**
   * Returns the bytes of its next request, which is the only open one.
   *
   * @param bytes the least bytes of the request and of its reply
   */
  public byte[] next(int bytes, Trace trace) {
    number++;
    int place = choose();
    Operation operation = operations.get(place);
    isWrite = operation.isWrite();
    long[] arguments = operation.choice().arguments(random);
    int replyBytes = Math.min(bytes, Reply.BYTES_MAX);
    return new Request(id, number, place, done, replyBytes, trace, arguments).bytes(bytes);
  }

  private int choose() {
    int drawn = random.nextInt(weights);
    for (int place = 0; ; place++) {
      drawn -= operations.get(place).weight();
      if (drawn < 0) {
        return place;
      }
    }
  }

  /**
   * Returns what the bytes of a reply say. The writes of a member that had a reply count as done.
   *
   * @throws IllegalArgumentException if the bytes are no reply
   */
  public Reply take(byte[] bytes) {
    Reply reply = Reply.read(bytes);
    if (reply.number() != number && reply.status() != Reply.Status.REFUSED) {
      throw new IllegalArgumentException(
          "request " + number + " has the reply to " + reply.number());
    }
    if (reply.status() == Reply.Status.DONE && isWrite) {
      done = done.with(number);
      isWrite = false;
    }
    return reply;
  }
}
