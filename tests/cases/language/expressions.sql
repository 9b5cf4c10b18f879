-- ok: precedence of OR, AND, NOT
-- is: SELECT a FROM s WHERE a OR (b AND NOT c AND d) OR e
SELECT a FROM s WHERE a OR b AND NOT c AND d OR e

-- ok: nested chains become flat
-- is: SELECT a FROM s WHERE a AND b AND c AND d AND (e OR f OR g)
SELECT a FROM s WHERE (a AND (b AND c)) AND d AND ((e OR f) OR g)

-- ok: comparisons in all spellings
-- is: SELECT a FROM s WHERE a = 1 AND b = 2 AND c <> 3 AND d <> 4 AND e <=> NULL AND f >= 5 AND g < 6
SELECT a FROM s WHERE a=1 AND b==2 AND c!=3 AND d<>4 AND e<=>NULL AND f>=5 AND g<6

-- ok: NOT binds weaker than a comparison and tighter than AND
-- is: SELECT a FROM s WHERE NOT (a = b) AND NOT c
SELECT a FROM s WHERE NOT a = b AND ! c

-- ok: IN, BETWEEN, IS
-- is: SELECT a FROM s WHERE a IN (1, 'x', (b + 1)) AND a NOT IN (2) AND b BETWEEN 1 AND 2 AND c NOT BETWEEN -1 AND 1 AND d IS NULL AND e IS NOT NULL
SELECT a FROM s WHERE a IN (1, 'x', b+1) AND a NOT IN (2) AND b BETWEEN 1 AND 2 AND c NOT BETWEEN - 1 AND +1 AND d IS NULL AND e IS NOT NULL

-- ok: IS TRUE and its kin
-- is: SELECT a FROM s WHERE (a IS TRUE) AND NOT (b > 1 IS UNKNOWN) AND c <=> d
SELECT a FROM s WHERE a IS true AND b > 1 IS NOT UNKNOWN AND c IS NOT DISTINCT FROM d

-- ok: LIKE in all its forms
-- is: SELECT a FROM s WHERE a LIKE 'x%' AND NOT (b RLIKE '\\d') AND (c ILIKE ANY ('a', 'b')) AND d NOT LIKE '!%' ESCAPE '!'
SELECT a FROM s WHERE a like 'x%' AND b NOT RLIKE '\\d' AND c ilike any ('a','b') AND d NOT LIKE '!%' ESCAPE '!'

-- ok: patterns and escapes of LIKE by their values
-- is: SELECT a FROM s WHERE a LIKE '50\\%' AND a LIKE '50\\%' AND b LIKE 'x' AND c LIKE concat(d, '%') AND (upper(e) LIKE f) = g AND (a = b) LIKE 'true'
SELECT a FROM s WHERE a LIKE '50\%' AND a LIKE '50\\%' AND b LIKE "x" ESCAPE '\\' AND c LIKE concat(d, '%') AND (UPPER(e) LIKE f) = g AND a = b LIKE 'true'

-- ok: an aggregate as a pattern is no quantifier
-- is: SELECT a FROM s GROUP BY a HAVING max(a) LIKE (max(b)) AND max(a) LIKE (any(b)) AND (max(a) LIKE ANY ('x'))
SELECT a FROM s GROUP BY a HAVING max(a) LIKE max(b) AND max(a) LIKE (any(b)) AND max(a) LIKE any('x')

-- ok: prefixes
-- is: SELECT a FROM s WHERE startswith(a, 'x') AND NOT startswith(lower(b), c) AND startswith(a, b, c)
SELECT a FROM s WHERE StartsWith(a, 'x') AND NOT startswith( lower(b), c ) AND startswith(a, b, c)

-- ok: numbers as Spark types them
-- is: SELECT 5, -5, 1.50, 0.5, 5BD, 1000.0D, -1.5D, 0.01D, 99999999999999999999BD, 10L, (- 10L), 150BD, 1.5F FROM s
SELECT 5, -5, 1.50, .5, 5., 1e3, -1.5D, 1E-2, 99999999999999999999, 10L, -10L, 1.5E2BD, 1.5F FROM s

-- ok: strings and their escapes
-- is: SELECT 'it\'s', 'it\'s', 'a"b', '\\d\\n', 'A\tA', 'back\\\\slash', '50\\%' FROM s
SELECT 'it''s', 'it\'s', "a""b", r'\d\n', '\u0041\t\101', 'back\\\\slash', '50\%' FROM s

-- ok: adjacent strings, hex, typed literals
-- is: SELECT ('a' 'b') AS x, X'1F' AS y, (DATE '2020-01-01') AS d, (TIMESTAMP '2020-01-01 00:00:00') AS t FROM s
SELECT 'a' 'b' AS x, X'1F' AS y, date '2020-01-01' AS d, timestamp '2020-01-01 00:00:00' AS t FROM s

-- ok: kept text is evenly spaced, calls in lower case, keywords in upper case
-- is: SELECT ((a + b) * - c || d), upper(trim(e)), (CASE WHEN a > 1 AND b THEN c LIKE 'x' ELSE d END) AS k FROM s
SELECT (a+b)*-c||d, UPPER( Trim(e) ), case when a>1 and b then c like 'x' else d end AS k FROM s

-- ok: double minus does not become a comment
-- is: SELECT (a - - 5), (- - b) FROM s
SELECT a- -5, - -b FROM s

-- ok: a comment inside an expression goes away
-- is: SELECT (a + b) FROM s
SELECT a /* x + */ + -- y
  b FROM s

-- ok: casts
-- is: SELECT cast(a AS ARRAY < INT >), (b :: decimal(10, 2)), (c :: ARRAY < INT >) = d, try_cast(e AS STRING) FROM s
SELECT CAST(a AS ARRAY<INT>), b::decimal(10,2), c::array<int> = d, try_cast(e as string) FROM s

-- ok: lambdas keep their variables, columns inside are found
SELECT transform(arr, x -> x + y), aggregate(arr, 0, (acc, x) -> acc + x, acc -> acc * k), exists(arr, v -> v > lim) FROM s

-- ok: a column where a unit could stand
-- is: SELECT date_trunc(unit, ts), timestampdiff(MINUTE, a, b), date_trunc('HOUR', ts) FROM s
SELECT date_trunc(unit, ts), timestampdiff(MINUTE, a, b), date_trunc('HOUR', ts) FROM s

-- ok: fields of structs
-- is: SELECT (a.b.c), (a.b.c.d + 1), (arr[0].x), (named_struct('k', v).k) FROM s
SELECT a.b.c, a.b.c.d + 1, arr[0].x, named_struct('k', v).k FROM s

-- ok: aggregates
-- is: SELECT max(a), count(*), count(DISTINCT a, b), sum((a * 2)) FILTER (WHERE b > 1 AND c), first(a, TRUE), any(a > 1), (100 * sum(a) / count(*)) FROM s
SELECT MAX(a), COUNT(*), Count(DISTINCT a, b), sum(a*2) FILTER (WHERE b > 1 AND c), first(a, true), any(a > 1), 100 * sum(ALL a) / count(*) FROM s

-- ok: aggregates deep in kept text
-- is: SELECT round(avg(a), 2), (CASE WHEN max(a) > 1 THEN min(max) END), coalesce(sum(b) FILTER (WHERE c), 0) FROM s
SELECT round(avg(a), 2), CASE WHEN max(a) > 1 THEN min(`max`) END, coalesce(sum(b) FILTER (WHERE c), 0) FROM s

-- ok: keywords as columns
SELECT date, timestamp, left, row, key, end, interval, format, `select`, current_date FROM s WHERE date > 1 AND end < 2

-- ok: rows
-- is: SELECT a FROM s WHERE ((a, b)) IN (((1, 2)), ((3, 4)))
SELECT a FROM s WHERE (a, b) IN ((1, 2), (3, 4))

-- ok: chained comparisons and comparisons of conditions
-- is: SELECT a FROM s WHERE (a = b) = c AND (d > 1) = TRUE
SELECT a FROM s WHERE a = b = c AND (d > 1) = true

-- ok: many parentheses
-- is: SELECT a FROM s WHERE a = 1
SELECT a FROM s WHERE (((((a))) = ((1))))

-- ok: spatial functions are nodes, and names of columns elsewhere
-- is: SELECT st_point FROM s WHERE st_within(st_point(s.x, cast(y AS DOUBLE)), st_geomfromtext('POLYGON EMPTY')) AND NOT st_dwithin(a, b, 1.5) AND coalesce(st_within(a, b), FALSE)
SELECT st_point FROM s WHERE ST_Within(ST_Point(s.x, CAST(y AS DOUBLE)), ST_GeomFromText('POLYGON EMPTY')) AND NOT (st_DWithin (a, b, 1.5)) AND coalesce(ST_Within(a, b), false)

-- fail 1:25: something is missing at =
SELECT a FROM s WHERE a =

-- fail 1:25: unexpected b
SELECT a FROM s WHERE a b

-- fail 2:9: ) without its (
SELECT a FROM s
WHERE a ) b

-- fail 1:23: ( is not closed
SELECT a FROM s WHERE (a = 1

-- fail 1:12: max stands inside another aggregate
SELECT avg(max(a)) FROM s

-- fail 1:8: count needs an argument
SELECT count() FROM s

-- fail: COUNT(DISTINCT *)
SELECT count(DISTINCT *) FROM s

-- fail: * stands for columns only
SELECT count(s.*) FROM s

-- fail 1:29: WITHIN GROUP is not supported
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM s

-- fail 1:17: write first(x, true)
SELECT first(a) IGNORE NULLS FROM s

-- fail 1:8: grouping is not supported
SELECT grouping(a) FROM s

-- fail: ? has no meaning here
SELECT a FROM s WHERE a = ?

-- fail 1:8: is too large for a double
SELECT 1e999 FROM s

-- fail 1:8: more than 38 digits
SELECT 1234567890123456789012345678901234567890 FROM s

-- fail 4:8: unexpected c
SELECT a -- one
FROM s /* two
three */ WHERE a > 1 AND
	b > 2 c

-- fail 1:41: something is missing at b
SELECT a FROM s WHERE a LIKE 'x' ESCAPE b

-- fail 1:25: something is missing at LIKE
SELECT a FROM s WHERE a LIKE

-- fail 1:25: unexpected ::
SELECT a FROM s WHERE a ::

-- fail 1:26: -> stands only in an argument of a function
SELECT a FROM s WHERE a  -> b
