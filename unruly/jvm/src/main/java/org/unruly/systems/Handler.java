package org.unruly.systems;

/** Answers the requests of a server; many threads call it at once. */
@FunctionalInterface
interface Handler {
  /** Returns the reply. */
  byte[] handle(byte[] request);
}
