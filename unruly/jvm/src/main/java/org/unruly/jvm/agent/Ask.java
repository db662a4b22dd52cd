package org.unruly.jvm.agent;

/**
 * What the agent wants asked.
 *
 * @param ticket the request's number on the wire
 * @param intendedNs when, CLOCK_MONOTONIC
 * @param flags of the wire
 */
record Ask(long ticket, long intendedNs, int flags) {}
