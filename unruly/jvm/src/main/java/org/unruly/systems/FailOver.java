package org.unruly.systems;

/**
 * A call whose server was gone, on the monotonic clock.
 *
 * @param detectedNs when its client noticed that
 * @param resentNs when it sent the request to the server that then answered
 * @param answeredNs when it had the reply
 */
record FailOver(long detectedNs, long resentNs, long answeredNs) {}
