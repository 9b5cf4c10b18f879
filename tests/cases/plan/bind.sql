-- ok: names are spelled as the stream spells them
-- is: id AS ID, room AS Room FROM Sensors WHERE temp > 20
SELECT ID, Room FROM sensors WHERE TEMP > 20

-- ok: a star is every column in order
-- is: id AS id, open AS open, at AS at FROM Doors
SELECT * FROM Doors

-- ok: a qualifier of the only stream goes away
-- is: id AS id FROM Doors WHERE open
SELECT d.id FROM Doors d WHERE d.open

-- ok: expressions are named by their text
-- is: (id + 1) AS id + 1 FROM Doors
SELECT id + 1 FROM Doors

-- ok: the window columns may be selected, which adds nothing
-- is: count(*) AS n FROM Doors [60000000 / 60000000 on at]
SELECT window_start, window_end, count(*) AS n FROM Doors [RANGE 1 MINUTE]

-- ok: the window columns may be computed with
-- is: unix_micros(__window_end) AS e, count(*) AS n FROM Doors [60000000 / 60000000 on at]
SELECT unix_micros(window_end) AS e, count(*) AS n FROM Doors [RANGE 1 MINUTE]

-- ok: windows are always keys, named or not
-- is: open AS open, count(*) AS n FROM Doors [60000000 / 60000000 on at] GROUP BY open
SELECT window_start, open, count(*) AS n FROM Doors [RANGE 1 MINUTE] GROUP BY window_start, open, window_end

-- ok: group by alias and by place
-- is: upper(room) AS r, id AS id, max(temp) AS m FROM Sensors [5000000 / 1000000 on ts] GROUP BY upper(room), id
SELECT upper(room) AS r, id, max(temp) AS m FROM Sensors [RANGE 5 SECONDS SLIDE 1 SECOND] GROUP BY r, 2

-- ok: a column wins over an alias of the same name
-- is: upper(room) AS id, count(*) AS n FROM Sensors [1000000 / 1000000 on ts] GROUP BY id, upper(room)
SELECT upper(room) AS id, count(*) AS n FROM Sensors [RANGE 1 SECOND] GROUP BY id, upper(room)

-- ok: having may use an alias
-- is: room AS room, avg(temp) AS t FROM Sensors [1000000 / 1000000 on ts] GROUP BY room HAVING avg(temp) > 20
SELECT room, avg(temp) AS t FROM Sensors [RANGE 1 SECOND] GROUP BY room HAVING t > 20

-- ok: another windowing attribute
-- is: count(*) AS n FROM Sensors [1000000 / 1000000 on arrived]
SELECT count(*) AS n FROM Sensors [RANGE 1 SECOND WATTR ARRIVED]

-- ok: a drop ratio per source, named in any spelling
-- is: count(*) AS n FROM Sensors [1000000 / 1000000 on ts per room]
SELECT count(*) AS n FROM Sensors S [RANGE 1 SECOND DRATIO 1% PER s.ROOM]

-- ok: a grouping expression inside a larger one
-- is: (hour(ts) + 1) AS h, count(*) AS n FROM Sensors [1000000 / 1000000 on ts] GROUP BY hour(ts)
SELECT hour(ts) + 1 AS h, count(*) AS n FROM Sensors [RANGE 1 SECOND] GROUP BY hour(ts)

-- ok: groups without aggregates
-- is: room AS room FROM Sensors [1000000 / 1000000 on ts] GROUP BY room
SELECT room FROM Sensors [RANGE 1 SECOND] GROUP BY room

-- ok: late tuples are a stream
-- is: id AS id, _query AS _query, _lateness_ms AS _lateness_ms FROM Sensors.late
SELECT id, _query, _lateness_ms FROM Sensors.late

-- ok: bad records are a stream
-- is: file AS file, position AS position, record AS record, reason AS reason FROM Doors.bad
SELECT * FROM doors.BAD

-- ok: joins keep their qualifiers
-- is: S.room AS room, D.open AS open FROM Sensors, Doors WHERE S.id = D.id
SELECT room, D.open FROM Sensors S [RANGE 1 MINUTE], Doors D [RANGE 1 MINUTE] WHERE S.id = D.id

-- ok: a stream with itself
-- is: A.room AS room, B.room AS other FROM Sensors, Sensors WHERE A.id = B.id
SELECT A.room, B.room AS other FROM Sensors A [RANGE 1 MINUTE], Sensors B [RANGE 1 SECOND] WHERE A.id = B.id

-- ok: a name in a window clause is one of its own stream
-- is: A.id AS id, count(*) AS n FROM Sensors [1000000 / 1000000 on arrived], Sensors [2000000 / 1000000 on ts] WHERE A.id = B.id GROUP BY A.id
SELECT A.id, count(*) AS n FROM Sensors A [RANGE 1 SECOND WATTR arrived], Sensors B [RANGE 2 SECONDS WATTR ts] WHERE A.id = B.id GROUP BY A.id

-- ok: windows of joins slide together
-- is: S.room AS room, max(D.id) AS m FROM Sensors [60000000 / 5000000 on ts], Doors [30000000 / 5000000 on at] WHERE S.id = D.id GROUP BY S.room
SELECT window_start, room, max(D.id) AS m FROM Sensors S [RANGE 1 MINUTE SLIDE 5 SECONDS], Doors D [RANGE 30 SECONDS] WHERE S.id = D.id GROUP BY room

-- ok: windows of joins slide by the least RANGE, an unbounded stream has none
-- is: count(*) AS n FROM Sensors [60000000 / 30000000 on ts], Doors [30000000 / 30000000 on at], Tagged WHERE S.id = D.id HAVING __window_end > __window_start
SELECT count(*) AS n FROM Sensors S [RANGE 1 MINUTE], Doors D [RANGE 30 SECONDS], Tagged WHERE S.id = D.id HAVING window_end > window_start

-- ok: an instant is a millisecond
-- is: count(*) AS n FROM Doors [1000 / 1000 on at]
SELECT count(*) AS n FROM Doors [NOW]

-- fail 1:18: stream Sensor not found. did you mean Sensors?
SELECT temp FROM Sensor

-- fail 1:15: stream Xyz not found. known streams: Doors, Log, Sensors
SELECT a FROM Xyz

-- fail 1:23: Sensors has no companion lost. companions: Sensors.late, Sensors.bad
SELECT * FROM Sensors.lost

-- fail 1:8: column tmp not found in Sensors. did you mean temp?
SELECT tmp FROM Sensors

-- fail 2:7: column rom not found in Sensors. did you mean room?
SELECT temp FROM Sensors
WHERE rom = 'x'

-- fail 1:8: X is not a stream of this query
SELECT X.id FROM Sensors

-- fail 1:8: X is not a stream of this query
SELECT X.* FROM Sensors

-- fail 1:8: Doors is not a stream of this query
SELECT Doors.id FROM Doors d

-- fail 1:8: column id is ambiguous. write S.id or D.id
SELECT id FROM Sensors S [RANGE 1 MINUTE], Doors D [RANGE 1 MINUTE] WHERE S.id = D.id

-- fail 1:34: Doors is used twice. write Doors A, Doors B
SELECT open FROM Doors AS Doors, Doors

-- fail 1:8: column room is neither grouped nor aggregated. add it to GROUP BY, or aggregate it: max(room)
SELECT room, max(temp) FROM Sensors [RANGE 1 MINUTE]

-- fail 1:14: column temp is neither grouped nor aggregated
SELECT upper(temp), room FROM Sensors [RANGE 1 MINUTE] GROUP BY room

-- fail 1:71: column temp is neither grouped nor aggregated
SELECT room FROM Sensors [RANGE 1 MINUTE] GROUP BY room HAVING room = temp

-- fail 1:27: an aggregate over a stream needs a window. write Sensors [RANGE 1 MINUTE]
SELECT count(*) AS n FROM Sensors

-- fail 1:35: an aggregate over an unbounded window is never final
SELECT count(*) AS n FROM Sensors [UNBOUNDED]

-- fail 1:22: stream Log has no event time to cut windows by
SELECT count(*) FROM Log [RANGE 1 MINUTE]

-- fail 1:52: WATTR room is of type string. the windowing attribute is a TIMESTAMP column
SELECT count(*) FROM Sensors [RANGE 1 MINUTE WATTR room]

-- fail 1:52: column time not found in Sensors
SELECT count(*) FROM Sensors [RANGE 1 MINUTE WATTR time]

-- fail 1:60: column rom not found in Sensors. did you mean room?
SELECT count(*) FROM Sensors [RANGE 1 MINUTE DRATIO 1% PER rom]

-- fail 1:59: PER tags is of type array<string>. the source of a tuple is a column of plain values
SELECT count(*) FROM Tagged [RANGE 1 MINUTE DRATIO 1% PER tags]

-- fail 1:59: PER more is of type map<string,int>. the source of a tuple is a column of plain values
SELECT count(*) FROM Tagged [RANGE 1 MINUTE DRATIO 1% PER more]

-- fail 1:60: PER window_end is not a column of this stream
SELECT count(*) FROM Sensors [RANGE 1 MINUTE DRATIO 1% PER window_end]

-- fail 1:47: PER is not supported in joins. leave it out: DRATIO holds for the stream as a whole
SELECT S.id FROM Sensors S [NOW DRATIO 1% PER S.id], Doors D [NOW] WHERE S.id = D.id

-- fail 1:39: WATTR at is not a column of this stream
SELECT S.id FROM Sensors S [NOW WATTR D.at], Doors D [NOW] WHERE S.id = D.id

-- fail 1:43: column sensor not found in Sensors
SELECT id FROM Sensors [NOW DRATIO 1% PER sensor]

-- fail 1:28: max is an aggregate and cannot stand in WHERE. filter groups with HAVING
SELECT id FROM Doors WHERE max(id) > 1

-- fail 1:59: max is an aggregate and cannot stand in GROUP BY
SELECT count(*) AS n FROM Doors [RANGE 1 MINUTE] GROUP BY max(id)

-- fail 1:63: GROUP BY 3 names no plain item of the select list. write the key itself
SELECT id, count(*) AS n FROM Doors [RANGE 1 MINUTE] GROUP BY 3

-- fail 1:12: two columns are named ID. give one of them another name: … AS ID_2
SELECT id, ID FROM Doors

-- fail 1:8: two columns are named id. name the columns: SELECT S.id, D.id AS id_2
SELECT * FROM Sensors S [RANGE 1 MINUTE], Doors D [RANGE 1 MINUTE]

-- fail 1:14: two columns are named id. name the columns: SELECT S.id, D.id AS id_2
SELECT S.id, D.id FROM Sensors S [RANGE 1 MINUTE], Doors D [RANGE 1 MINUTE]

-- fail 1:44: stream Log has no event time to join by. give it one: WITH (…, event_time = 'column'), or write WATTR column in the window
SELECT number FROM Doors [RANGE 1 MINUTE], Log [RANGE 1 MINUTE] WHERE id = number

-- fail 1:27: an aggregate over an unbounded window is never final. give a stream a RANGE: Doors [RANGE 1 MINUTE]
SELECT count(*) AS n FROM Doors A, Doors B [UNBOUNDED] WHERE A.id = B.id

-- fail 1:76: the streams of an aggregated join have different SLIDEs. write the same SLIDE everywhere, or once
SELECT count(*) AS n FROM Doors A [RANGE 1 MINUTE SLIDE 1 SECOND], Doors B [RANGE 1 MINUTE SLIDE 2 SECONDS] WHERE A.id = B.id

-- fail 1:8: column window_start not found. window_start and window_end are columns of windowed results
SELECT window_start FROM Doors A [NOW], Doors B [NOW] WHERE A.id = B.id

-- fail 1:8: the name window_end is taken
SELECT max(at) AS window_end FROM Doors [RANGE 1 MINUTE]

-- fail 1:8: column window_start not found. window_start and window_end are columns of windowed results
SELECT window_start FROM Doors

-- fail 1:12: column window_end not found. window_start and window_end are columns of windowed results
SELECT max(window_end) AS w FROM Doors [RANGE 1 MINUTE]

-- fail: the query selects nothing
SELECT window_start FROM Doors [RANGE 1 MINUTE] GROUP BY open HAVING count(*) > 1
