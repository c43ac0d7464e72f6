package listener

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Group runs the connections of one server and can await them. The zero value
// is ready to use; it is safe for concurrent use.
type Group struct {
	mu        sync.Mutex
	stopping  bool
	listeners map[net.Listener]struct{}
	conns     map[net.Conn]struct{}
	running   sync.WaitGroup
}

// Serve accepts from l until l is closed and runs handle for each connection
// on its own goroutine; the connection is closed when handle returns. It
// returns nil after Shutdown, else why accepting ended.
func (g *Group) Serve(l net.Listener, handle func(net.Conn)) error {
	if !g.addListener(l) {
		_ = l.Close() // shutting down already: never served
		return nil
	}
	defer g.dropListener(l)
	for {
		c, err := l.Accept()
		if err != nil {
			if g.ended() && errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		if !g.addConn(c) {
			_ = c.Close() // accepted during Shutdown
			continue
		}
		go func() {
			defer g.dropConn(c)
			handle(c)
		}()
	}
}

// Shutdown closes the listeners and waits until every handler has returned;
// the caller tells them to end. When ctx is done first, it closes the
// connections under them, still waits, and returns ctx's error.
func (g *Group) Shutdown(ctx context.Context) error {
	g.mu.Lock()
	g.stopping = true
	for l := range g.listeners {
		_ = l.Close() // its Serve reports a failure
	}
	g.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	for c := range g.conns {
		_ = c.Close() // handlers see it as their read or write error
	}
	g.mu.Unlock()
	<-done
	return ctx.Err()
}

// Len returns how many connections are being handled.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

func (g *Group) ended() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopping
}

func (g *Group) addListener(l net.Listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	if g.listeners == nil {
		g.listeners = map[net.Listener]struct{}{}
		g.conns = map[net.Conn]struct{}{}
	}
	g.listeners[l] = struct{}{}
	g.running.Add(1)
	return true
}

func (g *Group) dropListener(l net.Listener) {
	g.mu.Lock()
	delete(g.listeners, l)
	g.mu.Unlock()
	g.running.Done()
}

func (g *Group) addConn(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.conns[c] = struct{}{}
	g.running.Add(1)
	return true
}

func (g *Group) dropConn(c net.Conn) {
	_ = c.Close() // the handler is done with it
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
	g.running.Done()
}
