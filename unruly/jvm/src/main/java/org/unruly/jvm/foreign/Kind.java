package org.unruly.jvm.foreign;

/** Kinds of foreign records; their fields are in {@code unruly/schema/foreign.md}. */
public final class Kind {
  /** To the agent: process id, bound port, protocol version. */
  public static final int HELLO = 1;

  /** To the agent: what this process did in an interval. */
  public static final int INTERVAL = 2;

  /** To the agent: the stamps of one message. */
  public static final int SAMPLE = 3;

  /** To the agent: what the collector has done so far. */
  public static final int COLLECTOR = 4;

  /** To the agent: the stream is over, and accounted for. */
  public static final int DRAINED = 5;

  /** To the agent: all is told; the process ends. */
  public static final int DONE = 6;

  /** To the agent: how many records found no room. */
  public static final int DROPPED = 7;

  /** To the agent: why the process ends. */
  public static final int FAILURE = 8;

  /** To the agent: how many members the group has. */
  public static final int PEERS = 9;

  /** To the agent: a part of why the process ends. */
  public static final int WORDS = 10;

  /** From the agent: where the other side is. */
  public static final int PEER = 16;

  /** From the agent: when the stream begins and ends. */
  public static final int START = 17;

  /** From the agent: end now. */
  public static final int STOP = 18;

  /** From the agent, on an asking connection: whom it asks. */
  public static final int ROUTE = 32;

  /** From the agent, on an asking connection: ask this then. */
  public static final int ASK = 33;

  /** To the agent, on an asking connection: when a request was given to the kernel. */
  public static final int SENT = 34;

  /** To the agent, on an asking connection: a reply has come, with its stamps. */
  public static final int REPLY = 35;

  /** To the agent, on an asking connection: what was asked has failed. */
  public static final int FAILED = 36;

  /** To the agent: whom the server of a group member turned away. */
  public static final int REFUSED = 38;

  private Kind() {}
}
