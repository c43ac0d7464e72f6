package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Every connection begins with a hello of the side that has dialled, which the
// other one answers: a magic word, the length of what follows as 2 bytes
// big-endian, and that many bytes in the encoding of package codec. Nothing else
// is sent before the answer is there.
const (
	helloMagic  = "TRH1"
	answerMagic = "TRA1"
	// maxHello bounds a hello, and an answer, in bytes.
	maxHello = 8 << 10
	// MaxMeta bounds Hello.Meta in bytes.
	MaxMeta = 4 << 10
	// maxReason bounds the text of a refusal in bytes.
	maxReason = 1 << 10
)

// Kind says what a connection is for.
type Kind byte

// The kinds, part of the protocol between nodes.
const (
	KindGroup  Kind = 1 + iota // the messages of a Raft group
	KindRPC                    // gRPC
	KindTunnel                 // bytes of a client
	KindClient                 // gRPC for clients: what a front-end asks of the node that serves
)

// Identity is who a node says it is.
type Identity struct {
	Cluster     string // id of the cluster; "" = belongs to none yet
	Node        string // as the operator knows it
	Raft        string // as Raft groups know it; never used again with an empty disk
	Incarnation string // drawn once for a data directory
	Boot        uint64 // drawn at every start
	Address     string // where others reach it, host:port
}

// Hello is what the side that dials says first.
type Hello struct {
	Kind  Kind
	Group uint32 // of a KindGroup
	From  Identity
	To    string // Raft id of who is meant; "" = whoever answers
	Meta  []byte // opaque, at most MaxMeta bytes
}

// Refusal is the answer that a connection, or what was asked, is not wanted.
// Code tells programs why, Reason tells people.
type Refusal struct {
	Code   Code
	Reason string
	From   string // Raft name of the node that refuses; "" = this one
}

// Error implements error.
func (r *Refusal) Error() string { return r.Reason }

// Code is why something is refused. Part of the protocol between nodes.
type Code byte

// The codes.
const (
	CodeOther       Code = 1 + iota
	CodeStarting         // not ready yet: try again
	CodeNoGroup          // there is no such Raft group here, or not now
	CodeCluster          // another cluster
	CodeTarget           // the one who was meant is not here
	CodeIncarnation      // the node id belongs to another data directory
	CodeTwin             // the data directory is in use by another process
	CodeRemoved          // the node was removed from the cluster
	CodeRolledBack       // the data directory is older than what was seen of it
	CodeCertificate      // the certificate does not name the node
	CodeNotLeader        // somebody else has to be asked
	CodeUnreachable      // the node does not answer at the address it tells
)

var errHello = errors.New("transport: this is no node of a cluster")

func appendIdentity(b []byte, i Identity) []byte {
	for _, s := range []string{i.Cluster, i.Node, i.Raft, i.Incarnation, i.Address} {
		b = codec.AppendString(b, s)
	}
	return codec.AppendUint(b, i.Boot)
}

func readIdentity(r *codec.Reader) Identity {
	i := Identity{Cluster: r.String(), Node: r.String(), Raft: r.String(), Incarnation: r.String(), Address: r.String()}
	i.Boot = r.Uint()
	return i
}

func writeFrame(w io.Writer, magic string, body []byte) error {
	if len(body) > maxHello {
		return fmt.Errorf("transport: a hello of %d bytes, more than %d", len(body), maxHello)
	}
	b := binary.BigEndian.AppendUint16([]byte(magic), uint16(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

func readFrame(r io.Reader, magic string) (*codec.Reader, error) {
	var head [len(helloMagic) + 2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint16(head[len(magic):])
	if string(head[:len(magic)]) != magic || n > maxHello {
		return nil, errHello
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return &codec.Reader{B: body}, nil
}

func writeHello(w io.Writer, h Hello) error {
	if len(h.Meta) > MaxMeta {
		return fmt.Errorf("transport: %d bytes of meta data, more than %d", len(h.Meta), MaxMeta)
	}
	b := codec.AppendUint([]byte{byte(h.Kind)}, uint64(h.Group))
	b = codec.AppendString(appendIdentity(b, h.From), h.To)
	return writeFrame(w, helloMagic, codec.AppendString(b, string(h.Meta)))
}

func readHello(r io.Reader) (Hello, error) {
	f, err := readFrame(r, helloMagic)
	if err != nil {
		return Hello{}, err
	}
	h := Hello{Kind: Kind(f.Byte()), Group: uint32(f.Uint()), From: readIdentity(f), To: f.String()}
	h.Meta = []byte(f.String())
	if err := f.Done(); err != nil || len(h.Meta) > MaxMeta {
		return Hello{}, errors.Join(errHello, err)
	}
	return h, nil
}

// writeAnswer tells who is here, and why not if refused.
func writeAnswer(w io.Writer, self Identity, refused error) error {
	var code Code
	reason := ""
	if refused != nil {
		code, reason = CodeOther, refused.Error()
		if r, ok := errors.AsType[*Refusal](refused); ok {
			code = r.Code
		}
		reason = reason[:min(len(reason), maxReason)]
	}
	return writeFrame(w, answerMagic, codec.AppendString(appendIdentity([]byte{byte(code)}, self), reason))
}

func readAnswer(r io.Reader) (Identity, error) {
	f, err := readFrame(r, answerMagic)
	if err != nil {
		return Identity{}, err
	}
	code := Code(f.Byte())
	who, reason := readIdentity(f), f.String()
	if err := f.Done(); err != nil {
		return Identity{}, errors.Join(errHello, err)
	}
	if code != 0 {
		return who, &Refusal{Code: code, Reason: reason, From: who.Raft}
	}
	return who, nil
}
