package org.unruly.jvm.agent;

/** What became of an ask that got no reply; the codes are in {@code unruly/schema/foreign.md}. */
enum Failure {
  /** There was no connection. */
  DISCONNECTED(1),
  /** The peer's host refuses connections. */
  REFUSED(2),
  /** The connection broke, or the peer closed it. */
  RESET(3),
  /** The peer sent what is no reply of this run. */
  PROTOCOL(4),
  /** The kernel did not take the message. */
  SEND(5);

  private final int code;

  Failure(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }
}
