package org.unruly.systems;

import org.unruly.apps.Member;
import org.unruly.apps.Reply;
import org.unruly.apps.Trace;

/**
 * A member of an application, which calls one replica of the middle tier or both.
 *
 * <p>It ends with its first failure: whether the failed write was done is not known, so a later
 * request could not prove the earlier ones.
 */
final class MemberConnection extends Connection {
  private final Member member;
  private final ReplicaCalls replicas;
  private Trace trace = Trace.NONE;
  private FailOver failOver;
  private boolean isMember;

  MemberConnection(String application, ReplicaCalls replicas) {
    this.member = new Member(application);
    this.replicas = replicas;
  }

  @Override
  void trace(Trace of) {
    trace = of;
  }

  @Override
  FailOver failOver() {
    return failOver;
  }

  @Override
  void call(byte[] payload) throws Exception {
    failOver = null;
    byte[] request = isMember ? member.next(payload.length, trace) : member.join();
    byte[] reply = replicas.call(request, trace);
    failOver = replicas.failOver();
    check(member.take(reply));
    isMember = true;
    // the reply was checked, and the caller compares echoes
    keep(payload, 0, payload.length);
  }

  private static void check(Reply reply) throws Failure {
    switch (reply.status()) {
      case DONE -> {}
      case WRONG -> throw new Failure(Failure.Kind.WRONG, reply.words());
      case FAILED, REFUSED -> throw new Failure(Failure.Kind.STORE, reply.words());
    }
  }

  @Override
  boolean survivesTimeout() {
    return false;
  }

  @Override
  public void close() {
    replicas.close();
  }
}
