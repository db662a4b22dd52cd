package org.unruly.apps;

/** Draws the arguments of requests, and maps those that arrive into a range. */
final class Arguments {
  private Arguments() {}

  /** Returns a choice of one argument for each bound, from 0 to below the bound. */
  static Operation.Choice below(int... bounds) {
    return random -> {
      long[] arguments = new long[bounds.length];
      for (int place = 0; place < bounds.length; place++) {
        arguments[place] = random.nextInt(bounds[place]);
      }
      return arguments;
    };
  }

  /** Returns a number from 0 to below the bound for any argument. */
  static int within(long argument, int bound) {
    return (int) Math.floorMod(argument, (long) bound);
  }
}
