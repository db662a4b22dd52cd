package org.unruly.systems;

import org.unruly.jvm.Options;

/**
 * A system whose server can run any handler: each open request has a thread of its own, so a
 * handler may wait for a database.
 */
interface Platform extends EchoSystem {
  /** Starts the server with a handler; returns when it answers calls. */
  void serve(Options options, Handler handler) throws Exception;

  @Override
  default void serve(Options options) throws Exception {
    serve(options, request -> request);
  }
}
