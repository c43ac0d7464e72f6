package auth

import "time"

// generations is a map that forgets: what was not used for one to two lives, or
// while as many others came as fit.
type generations[V any] struct {
	now, before map[origin]V
	since       time.Time
	entries     int
	life        time.Duration
}

func (g *generations[V]) init(entries int, life time.Duration) {
	g.entries, g.life = max(entries/2, 1), life
	g.now, g.since = map[origin]V{}, time.Now()
}

func (g *generations[V]) get(s origin, now time.Time) (v V, ok bool) {
	g.turn(now)
	if v, ok = g.now[s]; ok {
		return v, true
	}
	if v, ok = g.before[s]; ok {
		g.put(s, v, now)
	}
	return v, ok
}

func (g *generations[V]) put(s origin, v V, now time.Time) {
	if _, there := g.now[s]; !there && len(g.now) >= g.entries {
		g.before, g.now, g.since = g.now, map[origin]V{}, now
	}
	g.now[s] = v
}

func (g *generations[V]) turn(now time.Time) {
	switch age := now.Sub(g.since); {
	case age >= 2*g.life:
		g.before, g.now, g.since = nil, map[origin]V{}, now
	case age >= g.life:
		g.before, g.now, g.since = g.now, map[origin]V{}, now
	}
}
