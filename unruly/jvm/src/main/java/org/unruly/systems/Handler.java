package org.unruly.systems;

/** What a server does with the bytes of a request; called by many threads at once. */
@FunctionalInterface
interface Handler {
  /** Returns the reply. */
  byte[] handle(byte[] request);
}
