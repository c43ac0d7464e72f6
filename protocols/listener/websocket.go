package listener

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// Bounds of WebSocket.
const (
	maxRequest        = 8 << 10 // bytes of the HTTP request
	wsBuffer          = 4 << 10 // bytes of a connection's read buffer, and of a shared write buffer
	controlTime       = time.Second
	pongTime          = 10 * time.Second
	DefaultMaxMessage = 16<<20 + 64<<10
)

// WebSocket carries a byte stream in binary messages (RFC 6455), whose limits
// mean nothing. Compression is not offered. Safe for concurrent use.
type WebSocket struct {
	// Path is where connections are upgraded, e.g. "/mqtt".
	Path string
	// Subprotocols are those spoken, best first; a client must offer one.
	Subprotocols []string
	// Origins are the web origins ("https://app.example.com") whose pages may
	// connect besides those of the host that they connect to; "*" is any. Clients
	// that are not browsers send none and may always.
	Origins []string
	// MaxMessage is the largest message in bytes, 0 = 16 MiB and 64 KiB. It is
	// not gathered, so this is no bound of memory.
	MaxMessage int64
}

// errNotHTTP is the failure of who speaks something else.
var errNotHTTP = errors.New("not an HTTP request")

var wsWriteBuffers = &sync.Pool{}

var normalClosure = websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")

// upgrade answers the HTTP request on nc, within its deadline.
func (w *WebSocket) upgrade(nc net.Conn) (net.Conn, error) {
	in := bufio.NewReaderSize(io.LimitReader(nc, maxRequest), wsBuffer)
	req, err := http.ReadRequest(in)
	if err != nil {
		if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errNotHTTP, err)
	}
	answer := &response{conn: nc, in: in, header: http.Header{}}
	if req.URL.Path != w.Path {
		http.NotFound(answer, req)
		return nil, fmt.Errorf("%w: %.100q is not here", errNotHTTP, req.URL.Path)
	}
	offered := websocket.Subprotocols(req)
	if !slices.ContainsFunc(offered, func(p string) bool { return slices.Contains(w.Subprotocols, p) }) {
		http.Error(answer, "the subprotocol must be one of: "+strings.Join(w.Subprotocols, ", "), http.StatusBadRequest)
		return nil, fmt.Errorf("subprotocols %.100q, not one of %q", offered, w.Subprotocols)
	}
	up := websocket.Upgrader{
		WriteBufferSize: wsBuffer, WriteBufferPool: wsWriteBuffers, // it goes on with the buffer of the request
		Subprotocols: w.Subprotocols, CheckOrigin: w.allows,
	}
	below := &dated{Conn: nc}
	answer.conn = below
	ws, err := up.Upgrade(answer, req, nil)
	if err != nil {
		return nil, err
	}
	limit := w.MaxMessage
	if limit <= 0 {
		limit = DefaultMaxMessage
	}
	ws.SetReadLimit(limit)
	if s := socketOf(nc); s != nil {
		s.named = w.rebound(req)
	}
	return newWebConn(nc, below, in, ws), nil
}

// allows judges where the page comes from that a browser connects for. Without
// it any page could talk to a broker on its reader's machine.
func (w *WebSocket) allows(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(w.Origins, "*") {
		return true
	}
	if slices.ContainsFunc(w.Origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	return host != "" && strings.EqualFold(u.Hostname(), host)
}

// rebound says that a page connects to its own host, whose name is neither this
// machine's nor known here: it may have been pointed at us to get past allows (DNS
// rebinding).
func (w *WebSocket) rebound(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.ContainsFunc(w.Origins, func(o string) bool {
		return o == "*" || strings.EqualFold(strings.TrimSuffix(o, "/"), origin)
	}) {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	_, err := netip.ParseAddr(host)
	return err != nil && !strings.EqualFold(host, "localhost")
}

// response answers one request on a connection that is then closed or upgraded.
type response struct {
	conn   net.Conn
	in     *bufio.Reader
	header http.Header
	told   bool
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) {
	if r.told {
		return
	}
	r.told = true
	r.header.Set("Connection", "close")
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = r.header.Write(&b) // memory takes it
	b.WriteString("\r\n")
	_, _ = io.WriteString(r.conn, b.String()) // the peer has gone
}

func (r *response) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.conn.Write(b)
}

// Hijack gives the connection over, deadlines kept.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return r.conn, bufio.NewReadWriter(r.in, bufio.NewWriterSize(r.conn, 512)), nil
}

// dated is the connection below the websocket package, which sets a deadline
// before each write: none for data, one of its own for control frames. Here data
// has the deadline of webConn's user, who may change it during a write.
type dated struct {
	net.Conn
	mu   sync.Mutex
	user time.Time
}

func (*dated) SetDeadline(time.Time) error     { return nil }
func (*dated) SetReadDeadline(time.Time) error { return nil }

func (d *dated) SetWriteDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.IsZero() {
		t = d.user
	}
	return d.Conn.SetWriteDeadline(t)
}

func (d *dated) setUser(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.user = t
	return d.Conn.SetWriteDeadline(t)
}

// webConn is the byte stream in binary messages. One goroutine may read while
// others write; addresses, read deadlines and Close are the connection's.
type webConn struct {
	net.Conn
	ws    *websocket.Conn
	below *dated
	in    *bufio.Reader // which ws reads from

	message io.Reader   // the one being read
	lost    error       // why nothing can be read any more
	parted  atomic.Bool // CloseWrite: what comes is only thrown away

	mu sync.Mutex // of Write
}

func newWebConn(nc net.Conn, below *dated, in *bufio.Reader, ws *websocket.Conn) *webConn {
	c := &webConn{Conn: nc, ws: ws, below: below, in: in}
	ws.SetPingHandler(func(data string) error { return c.pong([]byte(data)) })
	return c
}

func (c *webConn) pong(data []byte) error {
	// A client that reads slowly may take its time, but not for ever.
	err := c.ws.WriteControl(websocket.PongMessage, data, time.Now().Add(pongTime))
	if _, late := errors.AsType[net.Error](err); late || errors.Is(err, websocket.ErrCloseSent) {
		return nil // the writer sees it, too
	}
	return err
}

func (c *webConn) socket() *conn { return socketOf(c.Conn) }

// Read reads what there is of the current message, or waits for the next. After a
// deadline it goes on.
func (c *webConn) Read(b []byte) (int, error) {
	if c.parted.Load() {
		return c.Conn.Read(b)
	}
	for c.lost == nil {
		if err := c.await(); err != nil {
			return 0, err
		}
		if c.message == nil {
			c.lost = c.nextMessage()
			continue
		}
		n, err := c.message.Read(b)
		if err == io.EOF {
			c.message, err = nil, nil
		}
		if n > 0 || len(b) == 0 {
			c.lost = parting(err) // comes with the next call
			return n, nil
		}
		c.lost = parting(err)
	}
	return 0, c.lost
}

func (c *webConn) nextMessage() error {
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return parting(err)
	}
	if kind != websocket.BinaryMessage {
		text := websocket.FormatCloseMessage(websocket.CloseUnsupportedData, "binary messages only")
		_ = c.ws.WriteControl(websocket.CloseMessage, text, time.Now().Add(controlTime)) // it is closed either way
		return errors.New("a text message")
	}
	c.message = r
	return nil
}

// parting makes the peer's orderly close the end of the stream.
func parting(err error) error {
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseNoStatusReceived) {
		return io.EOF
	}
	return err
}

// Write sends b as one message.
func (c *webConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ws.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// SetWriteDeadline sets the deadline of data, also of a Write under way.
func (c *webConn) SetWriteDeadline(t time.Time) error { return c.below.setUser(t) }

// SetDeadline sets both deadlines.
func (c *webConn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	return c.below.setUser(t)
}

// Close says goodbye if that does not take long, and closes the connection.
func (c *webConn) Close() error {
	_ = c.ws.WriteControl(websocket.CloseMessage, normalClosure, time.Now().Add(partingTime)) // sent already, perhaps
	return c.Conn.Close()
}

// CloseWrite says goodbye: nothing is written any more, and what Read returns
// is of no meaning, until its error says that the peer has closed.
func (c *webConn) CloseWrite() error {
	_ = c.ws.WriteControl(websocket.CloseMessage, normalClosure, time.Now().Add(controlTime)) // sent already, perhaps
	c.parted.Store(true)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
