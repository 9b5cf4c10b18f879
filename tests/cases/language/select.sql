-- ok: stars
-- is: SELECT *, a.*, s.late.*, (a * b) FROM s
SELECT *, a.*, s.late.*, a*b FROM s

-- ok: companions and columns qualified by them
-- is: SELECT Sensors.late.id, Sensors.id, id FROM Sensors.late, Sensors.bad AS b
SELECT Sensors.late.id, Sensors.id, id FROM Sensors.LATE, Sensors.bad b

-- ok: comma list and joins make one condition
-- is: SELECT a.x FROM s AS a, t AS b, u AS c, v AS d WHERE a.x = b.x AND b.y = c.y AND a.z > 1 AND (a.w OR b.w)
SELECT a.x FROM s a JOIN t b ON a.x = b.x INNER JOIN u c ON (b.y = c.y AND a.z > 1), v d WHERE (a.w OR b.w)

-- ok: functions named like joins
-- is: SELECT a.x FROM s AS a, t AS b, u WHERE left(a.x, 2) = right(b.x, 2) AND TRUE
SELECT a.x FROM s a JOIN t b ON left(a.x, 2) = right(b.x, 2) CROSS JOIN u WHERE true

-- ok: cross join
-- is: SELECT a FROM s, t
SELECT a FROM s CROSS JOIN t

-- ok: aliases with and without AS
-- is: SELECT a AS x, (a + 1) AS y z, max(b) AS date, (INTERVAL 5 minutes) AS i, 'k' AS k FROM s
SELECT a x, a + 1 AS `y z`, max(b) date, INTERVAL 5 minutes i, 'k' AS k FROM s

-- ok: groups, and a group by place
-- is: SELECT (a % 2) AS k, b, count(*) FROM s GROUP BY (a % 2), b, lower(c) HAVING count(*) > 1
SELECT a % 2 AS k, b, count(*) FROM s GROUP BY 1, b, LOWER(c) HAVING COUNT( * ) > 1

-- ok: words that look like clauses
-- is: SELECT limit, offset, window, x.where, extract(year FROM ts) FROM s WHERE limit > 1 AND NOT (a <=> b)
SELECT limit, offset, window, x.where, extract(year FROM ts) FROM s WHERE limit > 1 AND a IS DISTINCT FROM b

-- ok: from inside expressions of the select list
-- is: SELECT NOT (a <=> b) AS d, trim(BOTH 'x' FROM c) FROM s
SELECT a IS DISTINCT FROM b AS d, trim(BOTH 'x' FROM c) FROM s

-- ok: unicode names
-- is: SELECT größe, 数据.温度, 'a😀b' AS x FROM 数据 WHERE größe > 1 AND y = 'é'
SELECT größe, 数据.温度, 'a😀b' AS x FROM 数据 WHERE größe > 1 AND y = 'é'

-- fail 1:10: did you mean FROM?
SELECT a FORM s

-- fail 2:2: did you mean WHERE?
SELECT a FROM s
	WHRE a > 1

-- fail 1:17: did you mean GROUP BY?
SELECT a FROM s GRUOP BY a

-- fail 1:1: SELECT needs FROM
SELECT 1

-- fail 1:9: expected an expression
SELECT a, FROM s

-- fail 1:1: SELECT is empty
SELECT FROM s

-- fail 1:17: WHERE is empty
SELECT a FROM s WHERE

-- fail 1:28: WHERE must stand before GROUP BY
SELECT a FROM s GROUP BY a WHERE b

-- fail 1:25: WHERE is given twice
SELECT a FROM s WHERE a WHERE b

-- fail 1:8: SELECT DISTINCT is not supported
SELECT DISTINCT a FROM s

-- fail 1:17: ORDER BY is not supported
SELECT a FROM s ORDER BY a

-- fail 1:29: LIMIT is not supported
SELECT a FROM s WHERE a > 1 LIMIT 10

-- fail 2:1: UNION is not supported
SELECT a FROM s
UNION ALL SELECT a FROM t

-- fail 1:17: QUALIFY is not supported
SELECT a FROM s QUALIFY a = 1

-- fail 1:17: LATERAL is not supported
SELECT a FROM s LATERAL VIEW explode(b) t AS c

-- fail 1:17: LEFT joins are not supported
SELECT a FROM s LEFT OUTER JOIN t ON s.a = t.a

-- fail 1:29: FULL joins are not supported
SELECT a FROM s JOIN r ON x FULL JOIN t ON s.a = t.a

-- fail 1:24: USING is not supported
SELECT a FROM s JOIN t USING (a)

-- fail 1:23: expected ON
SELECT a FROM s JOIN t

-- fail 1:15: queries inside FROM are not supported
SELECT a FROM (SELECT b FROM s)

-- fail 1:29: queries inside expressions are not supported
SELECT a FROM s WHERE a IN (SELECT b FROM t)

-- fail 1:31: queries inside expressions are not supported
SELECT a FROM s WHERE EXISTS (SELECT b FROM t)

-- fail 1:15: window functions with OVER are not supported
SELECT sum(x) OVER (PARTITION BY y) FROM s

-- fail 1:17: did you mean late?
SELECT a FROM s.lat

-- fail 1:23: max is an aggregate and cannot stand in WHERE
SELECT a FROM s WHERE max(a) > 1

-- fail 1:26: GROUP BY CUBE is not supported
SELECT a FROM s GROUP BY CUBE(a, b)

-- fail 1:26: GROUP BY 2 names no plain item
SELECT a FROM s GROUP BY 2

-- fail 1:12: unexpected c
SELECT a b c FROM s

-- fail 1:16: range(…) is not a stream
SELECT a FROM  range(5)

-- fail 1:15: {
SELECT a FROM {s}

-- ok: events of objects and regions
-- is: SELECT id, event FROM EVENTS OF Taxis BY id AT st_point(lon, lat) IN Zones WHERE event = 'ENTER'
SELECT id, event FROM events of Taxis BY id AT ST_Point(lon, lat) IN Zones WHERE event = 'ENTER'

-- ok: events with a time to dwell, a share that may be late and an alias
-- is: SELECT e.id FROM EVENTS OF Taxis BY id AT st_point(lon, lat) IN Zones [ DWELL 300000000 MICROSECONDS DRATIO 1.000000%] AS e
SELECT e.id FROM EVENTS OF Taxis BY id AT ST_Point(lon, lat) IN Zones [DRATIO 1% DWELL 5 MINUTES] e

-- ok: a stream may be called events
-- is: SELECT id FROM events
SELECT id FROM events

-- fail 1:45: expected IN
SELECT id FROM EVENTS OF t BY id AT p(x, y) z

-- fail 1:64: DWELL is given twice
SELECT id FROM EVENTS OF t BY id AT p(x) IN z [DWELL 5 SECONDS DWELL 1 DAY]
