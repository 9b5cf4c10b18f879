-- share: selections differ in constants, columns of the condition and operators only
SELECT id, temp FROM Sensors;
SELECT id, temp FROM Sensors WHERE temp > 20;
SELECT id, temp FROM Sensors WHERE temp > 30 AND room = 'hall' OR ok;
SELECT id, temp FROM Sensors WHERE id IN (1, 2, 3) AND hum IS NULL

-- share: columns as they come, whichever they are
SELECT id FROM Sensors;
SELECT temp, room FROM Sensors WHERE id > 3;
SELECT * FROM Sensors;
SELECT ts AS at, ts FROM Sensors

-- share: spelling is not meaning
SELECT ID, Temp FROM sensors S WHERE S.temp > 20;
select id AS ID, temp Temp from Sensors

-- share: windows and conditions are data
SELECT room, max(temp) AS m FROM Sensors [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY room;
SELECT room, max(temp) AS m FROM Sensors [RANGE 1 SECOND] WHERE id < 5 GROUP BY room;
SELECT room, max(temp) AS m FROM Sensors [NOW] GROUP BY 1

-- share: the same windowing attribute, named or not
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE WATTR ts]

-- share: the same derived value against other constants
SELECT id FROM Sensors WHERE id + 1 > 5;
SELECT id FROM Sensors WHERE id + 1 < 100

-- share: other derived values, as long as none of them can fail
SELECT id FROM Sensors WHERE upper(room) = 'HALL';
SELECT id FROM Sensors WHERE lower(room) LIKE 'h%';
SELECT id FROM Sensors WHERE room LIKE '%a_l' AND temp > 3

-- share: prefixes are ranges, patterns without wildcards are constants
SELECT id FROM Sensors WHERE room = 'hall';
SELECT id FROM Sensors WHERE room LIKE 'ha%';
SELECT id FROM Sensors WHERE room NOT LIKE 'ha!%' ESCAPE '!' OR room LIKE '%';
SELECT id FROM Sensors WHERE startswith(room, 'ha')

-- share: what has no columns is a constant
SELECT id FROM Sensors WHERE temp > 200;
SELECT id FROM Sensors WHERE temp > 2 * 100;
SELECT id FROM Sensors WHERE temp IN (double('NaN'), 3) OR 2 * 100 = 200;
SELECT id FROM Sensors WHERE ts > timestamp'2024-01-01' + INTERVAL 1 HOUR

-- share: a key is computed anyway
SELECT upper(room) AS r, count(*) AS n FROM Sensors [NOW] GROUP BY upper(room);
SELECT upper(room) AS r, count(*) AS n FROM Sensors [NOW] WHERE upper(room) > 'H' GROUP BY upper(room);
SELECT upper(room) AS r, count(*) AS n FROM Sensors [NOW] WHERE lower(room) > 'h' GROUP BY upper(room)

-- share: the same drop ratio per source in other windows
SELECT room, count(*) AS n FROM Sensors [RANGE 1 MINUTE DRATIO 1% PER id] GROUP BY room;
SELECT room, count(*) AS n FROM Sensors S [DRATIO 1.0 % PER S.ID NOW] WHERE temp > 3 GROUP BY room

-- share: a selection has no use for a drop ratio
SELECT id FROM Sensors;
SELECT id FROM Sensors [DRATIO 1% PER room]

-- share: count of a constant counts rows
SELECT count(1) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE]

-- share: joins differ in aliases, constants of conditions on one stream and ranges only
SELECT S.room, D.open FROM Sensors S [RANGE 1 MINUTE], Doors D [RANGE 1 MINUTE] WHERE S.id = D.id;
SELECT A.room, open FROM Sensors A [RANGE 5 SECONDS], Doors [NOW] WHERE Doors.id = A.id AND A.temp > 20;
SELECT room, open FROM Sensors S JOIN Doors D ON S.id = D.id AND D.id IN (1, 2) AND NOT open WHERE 2 * 100 = 200

-- share: equalities in another order, another way round
SELECT A.room FROM Sensors A, Doors B, Tagged C WHERE A.id = B.id AND B.id = C.id;
SELECT A.room FROM Sensors A, Doors B, Tagged C WHERE C.id = A.id AND A.id = B.id;
SELECT A.room FROM Sensors A, Doors B, Tagged C WHERE C.id = B.id AND B.id = A.id AND C.id = A.id

-- share: a key is the same in all streams
SELECT A.id FROM Doors A [NOW], Doors B [NOW] WHERE A.id = B.id;
SELECT B.id FROM Doors A [NOW], Doors B [NOW] WHERE A.id = B.id

-- share: aggregated joins in other windows
SELECT room, count(*) AS n FROM Sensors S [RANGE 1 MINUTE SLIDE 1 SECOND], Doors D [RANGE 5 SECONDS] WHERE S.id = D.id GROUP BY room;
SELECT room, count(*) AS n FROM Sensors A [RANGE 1 MINUTE], Doors B WHERE A.id = B.id AND temp < 3 GROUP BY 1

-- apart: joins with other results, conditions on combinations, drop ratios, windowing attributes or keys
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id = D.id;
SELECT S.temp FROM Sensors S [NOW], Doors D [NOW] WHERE S.id = D.id;
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id = D.id AND S.ok = D.open;
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id = D.id AND (S.ok OR D.open);
SELECT S.room FROM Sensors S [NOW DRATIO 1%], Doors D [NOW] WHERE S.id = D.id;
SELECT S.room FROM Sensors S [NOW], Doors D [NOW DRATIO 1%] WHERE S.id = D.id;
SELECT S.room FROM Sensors S [NOW WATTR arrived], Doors D [NOW] WHERE S.id = D.id;
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id + 1 = D.id;
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id + 1 = D.id AND S.id > 1;
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id + 1 = D.id AND S.id > 2

-- share: joins without a common key whose conditions on one stream differ
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id < D.id;
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id < D.id AND S.id > 2 AND D.open

-- apart: without a common key ranges are plan
SELECT S.room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id < D.id;
SELECT S.room FROM Sensors S [NOW], Doors D [RANGE 1 MINUTE] WHERE S.id < D.id;
SELECT S.room FROM Sensors S, Doors D [NOW] WHERE S.id < D.id

-- apart: another select list, of values that are computed
SELECT id FROM Sensors;
SELECT id + 1 AS id FROM Sensors;
SELECT id + 2 AS id FROM Sensors;
SELECT id, id + 1 AS next FROM Sensors

-- apart: another stream
SELECT id FROM Sensors;
SELECT id FROM Doors;
SELECT id FROM Sensors.late

-- apart: a derived value that cannot fail, others that can
SELECT id FROM Sensors WHERE temp > 5;
SELECT id FROM Sensors WHERE upper(room) = 'HALL';
SELECT id FROM Sensors WHERE id + 1 > 5;
SELECT id FROM Sensors WHERE 1 / id > 5

-- share: groups and aggregates of any columns
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT count(temp) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE] GROUP BY room;
SELECT id, avg(temp) AS a, max(ts) AS last FROM Sensors [RANGE 1 MINUTE] GROUP BY id, room;
SELECT ok, min(id) AS n, room FROM Sensors [RANGE 1 MINUTE] GROUP BY ok, room

-- apart: more columns of a sort, other groups or aggregates
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE] GROUP BY id, ok;
SELECT max(id) AS n, max(ts) AS last FROM Sensors [RANGE 1 MINUTE];
SELECT count(room) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE] GROUP BY temp;
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE] GROUP BY upper(room);
SELECT stddev(temp) AS s FROM Sensors [RANGE 1 MINUTE];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE] HAVING count(*) > 1;
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE WATTR arrived];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE DRATIO 1%];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE DRATIO 2%];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE DRATIO 2% PER id];
SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE DRATIO 2% PER room]

-- partial: every aggregate can be put together from parts
SELECT room, count(*) AS n, sum(temp) AS s, avg(id) AS a, min(hum) AS l, stddev(temp) AS d FROM Sensors [RANGE 1 MINUTE] GROUP BY room;
SELECT upper(room) AS r, max(ts) - min(ts) AS span FROM Sensors [RANGE 1 MINUTE] GROUP BY upper(room) HAVING count(*) > 1;
SELECT room FROM Sensors [RANGE 1 MINUTE] GROUP BY room

-- native: some aggregate or key is left to Spark
SELECT count(DISTINCT id) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT percentile(temp, 0.5) AS p FROM Sensors [RANGE 1 MINUTE];
SELECT count(*) FILTER (WHERE ok) AS n FROM Sensors [RANGE 1 MINUTE];
SELECT max(1 / id) AS q FROM Sensors [RANGE 1 MINUTE];
SELECT collect_list(id) AS l FROM Sensors [RANGE 1 MINUTE]

-- fail: sum(DISTINCT …) is not supported over streams. count(DISTINCT …) is
SELECT sum(DISTINCT id) AS s FROM Sensors [RANGE 1 MINUTE]
