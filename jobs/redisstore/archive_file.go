package redisstore

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"forkyard/forkcore"
)

// An archived session is one file, zstd over a manifest (one line of JSON) and then the payload of each key, in the
// order of the manifest and without anything between: what DUMP made of it, or, of its blobs, the fields and values by
// turns, each after its length as a varint. Blobs are most of a session, and Redis stands still while it dumps or restores a key.

const (
	archiveFormat = 1
	archiveSuffix = ".fyz"
	// maxDumped bounds what the keys other than blobs may come to in bytes: they come back in one command, and dumping and
	// restoring that much takes Redis about a second. An executor that is not heard for four is taken for dead.
	maxDumped = 64 << 20
	// maxArchive bounds all of it, which is held in memory on the way.
	maxArchive = 512 << 20
	// maxManifest bounds the first line: about 100 bytes for each key.
	maxManifest = 64 << 20
)

// manifest is the first line of a file.
type manifest struct {
	Format     int             `json:"format"`
	Session    string          `json:"session"`
	Title      string          `json:"title"` // for people who look into it
	ArchivedAt time.Time       `json:"archived_at"`
	SHA256     forkcore.Digest `json:"sha256"` // of all that follows the line
	// Runs are the ids of its runs and dispatches.
	Runs []string      `json:"runs"`
	Keys []archivedKey `json:"keys"`
}

// archivedKey is a key without the part that names its shard.
type archivedKey struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
	// Fields is true for fields and values, false for what DUMP made.
	Fields bool `json:"fields,omitempty"`
}

// dump is a whole session as the archive holds it: payloads[i] is that of Keys[i].
type dump struct {
	manifest
	payloads []string
}

// archivePath is where a session's file lies in dir.
func archivePath(dir, sessionID string) string { return filepath.Join(dir, sessionID+archiveSuffix) }

// counted hashes and counts what is written to a file.
type counted struct {
	hash hash.Hash
	n    int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.hash.Write(b)
}

func (c *counted) sum() (d forkcore.Digest) {
	c.hash.Sum(d[:0])
	return d
}

// writeArchive writes a file and reads it back. It is whole and on disk under its name when it returns, or there is none.
func writeArchive(dir string, d dump) (bytes int64, sum forkcore.Digest, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, sum, fmt.Errorf("make the archive's folder: %w", err)
	}
	f, err := os.CreateTemp(dir, d.Session+archiveSuffix+".tmp-*")
	if err != nil {
		return 0, sum, fmt.Errorf("begin an archive file: %w", err)
	}
	defer func() {
		if err != nil {
			// The first error tells; what is left here is swept away by a later round.
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	c := &counted{hash: sha256.New()}
	if err := encodeArchive(io.MultiWriter(f, c), d); err != nil {
		return 0, sum, fmt.Errorf("write %s: %w", f.Name(), err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return 0, sum, fmt.Errorf("write %s to disk: %w", f.Name(), err)
	}
	back, sum, err := readArchive(f.Name())
	if err == nil && (sum != c.sum() || back.SHA256 != d.SHA256 || !slices.Equal(back.payloads, d.payloads) || !slices.Equal(back.Keys, d.Keys)) {
		err = errors.New("it differs from what was written")
	}
	if err != nil {
		return 0, sum, fmt.Errorf("read %s back: %w", f.Name(), err)
	}
	if err := os.Rename(f.Name(), archivePath(dir, d.Session)); err != nil {
		return 0, sum, fmt.Errorf("name an archive file: %w", err)
	}
	return c.n, sum, syncDir(dir)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the archive's folder: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the archive's folder to disk: %w", err)
	}
	return nil
}

func encodeArchive(w io.Writer, d dump) error {
	line, err := json.Marshal(d.manifest)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(w)
	if err != nil {
		return err
	}
	if _, err := z.Write(append(line, '\n')); err != nil {
		return err
	}
	for _, p := range d.payloads {
		if _, err := io.WriteString(z, p); err != nil {
			return err
		}
	}
	return z.Close()
}

// sumOf is the digest of all payloads.
func sumOf(payloads []string) (d forkcore.Digest) {
	h := sha256.New()
	for _, p := range payloads {
		_, _ = io.WriteString(h, p) // a hash takes everything
	}
	h.Sum(d[:0])
	return d
}

// readArchive reads a file whole and checks it against its manifest; what does not fit is forkcore.ErrCorrupt. sum is that
// of the file.
func readArchive(path string) (d dump, sum forkcore.Digest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return d, sum, err
	}
	defer f.Close()
	c := &counted{hash: sha256.New()}
	d, err = decodeArchive(io.TeeReader(f, c))
	if err == nil {
		_, err = io.Copy(c, f) // what the decoder left
	}
	if err != nil {
		return d, sum, fmt.Errorf("%s: %w: %w", path, forkcore.ErrCorrupt, err)
	}
	return d, c.sum(), nil
}

func decodeArchive(r io.Reader) (d dump, err error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return d, err
	}
	defer z.Close()
	b := bufio.NewReader(io.LimitReader(z, maxManifest+maxArchive+1))
	line, err := b.ReadBytes('\n')
	if err != nil {
		return d, fmt.Errorf("read the manifest: %w", err)
	}
	if err := json.Unmarshal(line, &d.manifest); err != nil {
		return d, fmt.Errorf("read the manifest: %w", err)
	}
	if d.Format != archiveFormat {
		return d, fmt.Errorf("its form is %d, and this version reads %d", d.Format, archiveFormat)
	}
	left := int64(maxArchive)
	for _, k := range d.Keys {
		if !archivedStem(k.Key, d.Session) {
			return d, fmt.Errorf("the key %q is none of a session", k.Key)
		}
		if left -= k.Bytes; k.Bytes < 0 || left < 0 {
			return d, fmt.Errorf("the key %s has %d bytes, which is too many", k.Key, k.Bytes)
		}
		p := make([]byte, k.Bytes)
		if _, err := io.ReadFull(b, p); err != nil {
			return d, fmt.Errorf("read the key %s: %w", k.Key, err)
		}
		d.payloads = append(d.payloads, string(p))
	}
	if _, err := b.ReadByte(); !errors.Is(err, io.EOF) {
		return d, errors.New("more follows than its manifest lists")
	}
	if got := sumOf(d.payloads); got != d.SHA256 {
		return d, fmt.Errorf("its content has the digest %s, not %s", got, d.SHA256)
	}
	return d, nil
}

// packFields writes a hash, sorted so that the same one makes the same file.
func packFields(hash map[string]string) string {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(hash)) {
		for _, s := range []string{name, hash[name]} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return string(b)
}

// unpackFields reads what packFields wrote: names and values by turns.
func unpackFields(payload string) ([]string, error) {
	var list []string
	for len(payload) > 0 {
		n, size := binary.Uvarint([]byte(payload[:min(len(payload), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(payload)-size) {
			return nil, fmt.Errorf("a field is cut off: %w", forkcore.ErrCorrupt)
		}
		list = append(list, payload[size:size+int(n)])
		payload = payload[size+int(n):]
	}
	if len(list)%2 != 0 {
		return nil, fmt.Errorf("a field has no value: %w", forkcore.ErrCorrupt)
	}
	return list, nil
}

// archivedStem reports whether a key may be written when a session comes back.
func archivedStem(key, sessionID string) bool {
	stem, id, found := strings.Cut(key, ":")
	stem += ":"
	return found && (slices.Contains(stemsBySession, stem) && id == sessionID || slices.Contains(stemsByAgent, stem) && strings.HasPrefix(id, sessionID+":") ||
		slices.Contains(stemsByRun, stem) || slices.Contains(stemsByDispatch, stem))
}
