package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the compression of a batch's record section.
type Codec uint8

// The codecs of the format.
const (
	None Codec = iota
	Gzip
	Snappy // raw, or in the framing of Java's snappy library ("xerial")
	Lz4    // the frame format
	Zstd
)

// String returns Kafka's name of the codec.
func (c Codec) String() string {
	names := [...]string{"none", "gzip", "snappy", "lz4", "zstd"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("codec %d", uint8(c))
}

// Limits that a Decompressor's zero fields stand for.
const (
	DefaultMaxBytes = 64 << 20
	DefaultRatio    = 1000

	// ratioFloor is how far any batch may expand whatever its ratio: small
	// batches of equal records compress extremely well and do no harm.
	ratioFloor = 4 << 20
	// zstdWindow is the largest window a zstd frame may ask for, which is
	// what its decoder allocates: 8 MiB is that of level 19.
	zstdWindow = 8 << 20
)

// Decompressor decompresses record sections within limits, which hold while
// the output grows: a decompression bomb costs at most the limit. The zero
// value has the default limits. It may be used concurrently.
type Decompressor struct {
	MaxBytes int // largest output in bytes; 0 is DefaultMaxBytes
	Ratio    int // largest output / input beyond the first 4 MiB of output; 0 is DefaultRatio
}

// Records returns the record section of a batch: in place when it is not
// compressed, else freshly allocated. d may be nil, for the default limits.
// The batch must have passed Split.
func Records(batch []byte, d *Decompressor) ([]byte, error) {
	src := batch[HeaderSize:len(batch):len(batch)]
	codec := BatchCodec(batch)
	if codec == None {
		return src, nil
	}
	return d.Decompress(codec, src)
}

// Decompress returns the decompressed form of src, ErrTooLarge when that is
// beyond the limits and ErrInvalid when src is malformed. A nil Decompressor
// has the default limits.
func (d *Decompressor) Decompress(codec Codec, src []byte) ([]byte, error) {
	limit := d.limit(len(src))
	var out []byte
	var err error
	switch codec {
	case None:
		return src, nil
	case Gzip:
		out, err = gunzip(src, limit)
	case Snappy:
		out, err = unsnappy(src, limit)
	case Lz4:
		out, err = unlz4(src, limit)
	case Zstd:
		out, err = unzstd(src, limit)
	default:
		err = fmt.Errorf("%w: unknown codec", ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress %d bytes of %v: %w", len(src), codec, err)
	}
	return out, nil
}

func (d *Decompressor) limit(src int) int {
	most, ratio := DefaultMaxBytes, DefaultRatio
	if d != nil && d.MaxBytes > 0 {
		most = d.MaxBytes
	}
	if d != nil && d.Ratio > 0 {
		ratio = d.Ratio
	}
	if int64(src)*int64(ratio) < int64(most) {
		return min(most, max(ratioFloor, src*ratio))
	}
	return most
}

// readAll reads r to its end into a buffer that grows by doubling and never
// beyond limit.
func readAll(r io.Reader, src, limit int) ([]byte, error) {
	out := make([]byte, 0, min(limit, max(512, 4*src)))
	for {
		if len(out) == cap(out) {
			if len(out) >= limit {
				return out, atEnd(r, limit)
			}
			grown := make([]byte, len(out), min(limit, 2*cap(out)))
			copy(grown, out)
			out = grown
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
}

// atEnd tells whether r ends exactly at the limit.
func atEnd(r io.Reader, limit int) error {
	var one [1]byte
	n, err := io.ReadFull(r, one[:])
	if n != 0 {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	if err != io.EOF {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// The decoders are pooled with the reader they read from; sync.Pool lets
// idle ones go.
type gzipDecoder struct {
	src bytes.Reader
	gz  gzip.Reader
}

type lz4Decoder struct {
	src bytes.Reader
	lz  *lz4.Reader
}

type zstdDecoder struct {
	src bytes.Reader
	zst *zstd.Decoder
}

var (
	gzipPool = sync.Pool{New: func() any { return new(gzipDecoder) }}
	lz4Pool  = sync.Pool{New: func() any { return &lz4Decoder{lz: lz4.NewReader(nil)} }}
	zstdPool = sync.Pool{New: newZstd}
)

func newZstd() any {
	zst, err := zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(1<<40)) // readAll bounds the output
	if err != nil {
		return err // options are constant: cannot happen, but is reported if it does
	}
	d := &zstdDecoder{zst: zst}
	runtime.AddCleanup(d, (*zstd.Decoder).Close, zst)
	return d
}

func gunzip(src []byte, limit int) ([]byte, error) {
	d := gzipPool.Get().(*gzipDecoder)
	defer gzipPool.Put(d)
	defer d.src.Reset(nil)
	d.src.Reset(src)
	if err := d.gz.Reset(&d.src); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return readAll(&d.gz, len(src), limit)
}

func unlz4(src []byte, limit int) ([]byte, error) {
	d := lz4Pool.Get().(*lz4Decoder)
	defer lz4Pool.Put(d)
	defer d.src.Reset(nil)
	d.src.Reset(src)
	d.lz.Reset(&d.src)
	return readAll(d.lz, len(src), limit)
}

func unzstd(src []byte, limit int) ([]byte, error) {
	got := zstdPool.Get()
	d, ok := got.(*zstdDecoder)
	if !ok {
		return nil, got.(error)
	}
	defer zstdPool.Put(d)
	defer d.src.Reset(nil)
	d.src.Reset(src)
	if err := d.zst.Reset(&d.src); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return readAll(d.zst, len(src), limit)
}

// xerial begins the framing that Java clients put around snappy blocks:
// magic, version and lowest compatible version, then blocks with a big-endian
// length.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func unsnappy(src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerial) {
		return unsnappyBlock(nil, src, limit)
	}
	if len(src) < xerialHeader {
		return nil, fmt.Errorf("%w: cut snappy frame", ErrInvalid)
	}
	var out []byte
	for rest := src[xerialHeader:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, fmt.Errorf("%w: cut snappy block", ErrInvalid)
		}
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(n) > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: snappy block of %d bytes in %d", ErrInvalid, n, len(rest))
		}
		var err error
		if out, err = unsnappyBlock(out, rest[:n], limit); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return out, nil
}

// unsnappyBlock appends the block's content to dst. A block states its size
// up front, which is checked before it is believed: snappy's best element
// makes 64 bytes of 3.
func unsnappyBlock(dst, block []byte, limit int) ([]byte, error) {
	size, err := s2.DecodedLen(block)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	case size > limit-len(dst):
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	case size > 22*len(block):
		return nil, fmt.Errorf("%w: %d bytes of snappy cannot hold %d", ErrInvalid, len(block), size)
	}
	if cap(dst)-len(dst) < size {
		grown := make([]byte, len(dst), min(limit, max(2*cap(dst), len(dst)+size)))
		copy(grown, dst)
		dst = grown
	}
	end := len(dst) + size
	if _, err := s2.Decode(dst[len(dst):end:end], block); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return dst[:end], nil
}
