package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;

/** Counts the places of car parks, and recommends another one when a car park is full. */
final class ParknPark implements Application {
  static final int PARKS = 20;
  static final int CAPACITY = 12;

  /** A car park begins with at least this many cars, up to a few more. */
  private static final int CARS_LEAST = 8;

  static final Members MEMBERS =
      new Members("drivers", "", "visits", "deed varchar(10), park int, outcome varchar(12)");

  @Override
  public String name() {
    return "parkn-park";
  }

  @Override
  public List<String> tables() {
    return MEMBERS.tables(
        "create table if not exists car_parks(id int primary key, capacity int not null,"
            + " occupied int not null, entries bigint not null, exits bigint not null,"
            + " first_cars int not null)",
        // a car that was there from the beginning has no member
        "create table if not exists cars(id bigint auto_increment primary key,"
            + " park int not null, member bigint)",
        "create index if not exists cars_park on cars(park, id)",
        "create index if not exists cars_member on cars(member)",
        "create index if not exists visits_park on visits(park)");
  }

  @Override
  public void fill(Connection database) throws SQLException {
    if (Sql.number(database, "select count(*) from car_parks") > 0) {
      return;
    }
    for (int park = 1; park <= PARKS; park++) {
      int cars = CARS_LEAST + park % (CAPACITY - CARS_LEAST + 1);
      Sql.change(
          database,
          "insert into car_parks values(?, ?, ?, ?, 0, ?)",
          park,
          CAPACITY,
          cars,
          cars,
          cars);
      for (int car = 0; car < cars; car++) {
        Sql.change(database, "insert into cars(park) values(?)", park);
      }
    }
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    MEMBERS.join(database, member);
  }

  @Override
  public List<Operation> operations() {
    return List.of(
        new Operation("free", 35, false, Arguments.below(PARKS), ParknPark::free),
        new Operation("recommend", 15, false, Arguments.below(PARKS), ParknPark::recommend),
        new Operation("overview", 10, false, Arguments.below(), ParknPark::overview),
        new Operation("mine", 8, false, Arguments.below(), ParknPark::mine),
        new Operation("enter", 17, true, Arguments.below(PARKS), ParknPark::enter),
        new Operation("leave", 15, true, Arguments.below(), ParknPark::leave));
  }

  private static int park(long[] arguments) {
    return 1 + Arguments.within(arguments[0], PARKS);
  }

  private static String free(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database, "select capacity - occupied from car_parks where id = ?", park(arguments));
  }

  private static String recommend(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return near(database, park(arguments));
  }

  /** Returns the nearest other car park with a free place, by their numbers along the road. */
  private static String near(Connection database, int park) throws SQLException {
    return "try "
        + Sql.text(
            database,
            "select id from car_parks where id <> ? and occupied < capacity"
                + " order by abs(id - ?), id limit 1",
            park,
            park);
  }

  private static String overview(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select id, capacity - occupied from car_parks order by occupied - capacity, id limit 5");
  }

  private static String mine(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "parked at "
        + Sql.text(database, "select park from cars where member = ? limit 1", member);
  }

  private static String enter(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int park = park(arguments);
    long free =
        Sql.number(
            database, "select capacity - occupied from car_parks where id = ? for update", park);
    boolean isParked =
        Sql.row(database, "select id from cars where member = ? limit 1", member).isPresent();
    String outcome = isParked ? "parked" : free > 0 ? "entered" : "full";
    if (outcome.equals("entered")) {
      Sql.change(database, "insert into cars(park, member) values(?, ?)", park, member);
      Sql.change(
          database,
          "update car_parks set occupied = occupied + 1, entries = entries + 1 where id = ?",
          park);
    } else if (outcome.equals("full")) {
      tow(database, park);
    }
    MEMBERS.record(database, member, number, "enter", park, outcome);
    return outcome.equals("full") ? "full, " + near(database, park) : outcome;
  }

  /** Removes the car that is there longest, because its driver may never come back. */
  private static void tow(Connection database, int park) throws SQLException {
    long car =
        Sql.number(database, "select id from cars where park = ? order by id limit 1", park);
    Sql.change(database, "delete from cars where id = ?", car);
    exit(database, park);
  }

  private static void exit(Connection database, long park) throws SQLException {
    Sql.change(
        database,
        "update car_parks set occupied = occupied - 1, exits = exits + 1 where id = ?",
        park);
  }

  private static String leave(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long park = Sql.number(database, "select park from cars where member = ? limit 1", member);
    Sql.row(database, "select id from car_parks where id = ? for update", park);
    // the car may have been towed before the row was locked
    boolean isThere =
        Sql.change(database, "delete from cars where park = ? and member = ?", park, member) == 1;
    if (isThere) {
      exit(database, park);
    }
    String outcome = isThere ? "left" : "not parked";
    MEMBERS.record(database, member, number, "leave", park, outcome);
    return outcome;
  }

  @Override
  public Tally tally(Connection database, long member) throws SQLException {
    return MEMBERS.tally(database, member);
  }

  @Override
  public Optional<String> contradiction(Connection database) throws SQLException {
    return MEMBERS.contradiction(
        database,
        new Check(
            "car_parks: %s has %s of %s places occupied after %s entries and %s exits",
            "select id, occupied, capacity, entries, exits from car_parks"
                + " where occupied <> entries - exits or occupied < 0 or occupied > capacity"),
        new Check(
            "car_parks: %s has %s places occupied, but %s cars",
            "select p.id, p.occupied, count(c.id) from car_parks p left join cars c"
                + " on c.park = p.id group by p.id, p.occupied having p.occupied <> count(c.id)"),
        new Check(
            "car_parks: %s counts %s entries after the first cars, but has %s visits",
            "select p.id, p.entries - p.first_cars, count(v.id) from car_parks p left join visits v"
                + " on v.park = p.id and v.outcome = 'entered'"
                + " group by p.id, p.entries, p.first_cars"
                + " having p.entries - p.first_cars <> count(v.id)"),
        new Check(
            "cars: member %s has %s cars parked",
            "select member, count(*) from cars where member is not null"
                + " group by member having count(*) > 1"));
  }
}
