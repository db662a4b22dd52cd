package org.unruly.apps;

import java.util.random.RandomGenerator;

/**
 * An operation of an application.
 *
 * @param name its name, such as {@code bid}
 * @param weight how often it is chosen, beside the weights of the other operations
 * @param isWrite true if it changes the tables; it then adds itself to the tally of its member
 * @param choice how its arguments are drawn
 * @param action what it does
 */
record Operation(String name, int weight, boolean isWrite, Choice choice, Action action) {
  /** Draws the arguments of one request. */
  @FunctionalInterface
  interface Choice {
    /** Returns at most {@link Request#ARGUMENTS_MAX} numbers. */
    long[] arguments(RandomGenerator random);
  }
}
