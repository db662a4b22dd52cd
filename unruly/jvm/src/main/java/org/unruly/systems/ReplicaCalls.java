package org.unruly.systems;

import org.unruly.apps.Trace;

/** The calls of one member to the replicas of a middle tier. */
interface ReplicaCalls extends AutoCloseable {
  /** Returns the reply of a replica to a request. */
  byte[] call(byte[] request, Trace trace) throws Exception;

  /** Returns the fail-over of the last call, or null if there was none. */
  FailOver failOver();

  @Override
  void close();
}
