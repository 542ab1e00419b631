"""Counts of genes in cells, with the methods that users of scvi-tools know."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import Dataset, Schema
from ..data.cells import choose_genes, match_genes, read_anndata
from ..data.dataset import as_matrix
from ..data.disk import in_memory
from ..data.files import Messages, quoted, texts_of
from ..data.tables import FrameTable, Roles, batch_contexts, check_roles, require_column
from ..errors import CurvaeError, require
from ..hierarchy.lineages import Lineage, explain_along, repeat_lineage, require_groups
from ..maps.cells import add_map, transfer_labels
from ..maps.embedding import Embedding, point_distances
from ..models import Batch
from ..settings import described, require_choice, require_count
from ..training.differential import Populations, compare_populations, split_groups
from ..training.fitted import Config, Fitted, choose_device, embed, health, likelihoods
from ..training.fitting import fit
from ..training.queries import fit_query, fit_scores, held_out_fit, unknown_probability
from ..training.rows import random_split
from ..training.storage import (
    CONFIG,
    embedding_path,
    embedding_table,
    load_fitted,
    read_embedding,
    remove_files,
    save_fitted,
    write_tables,
)
from .poincare_vae import Array, plain

__all__ = ["CellVAE"]

_SETUP = "curvae_setup"  # in `uns`: the roles of columns
_STORED, _KNOWN = "adata.h5ad", "reference.csv"
_NAMED = {"n_latent": "dim", "dropout_rate": "dropout", "gene_likelihood": "likelihood", "random_state": "seed"}
_WIDTH = 128  # of hidden layers whose number alone is given
_INERT = ("batch_size", "silent")  # arguments of scvi-tools that change no value
_OUTPUTS = 1 << 22  # of the decoder, at once
_NEAREST = 100  # cells, and at most a fifth of all, that stand for a place of the map
_COORDINATES = ("tangent", "ball", "ambient")


def _refuse(method: str, others: Iterable[str]) -> None:
    """Raise for arguments that only scvi-tools has, but for those that change no value."""
    for name in others:
        if name not in _INERT:
            raise CurvaeError(f"`{name}` means nothing to {method}, whatever it does in scvi-tools; leave it out")


def _require_anndata(adata: Any) -> Any:
    """Return an object of AnnData; raise for anything else."""
    anndata = require("anndata", "CellVAE needs anndata")
    if not isinstance(adata, anndata.AnnData):
        raise CurvaeError(f"`adata` must be an AnnData object, got a {type(adata).__name__}; read it with anndata")
    return adata


class CellVAE:
    """A model of counts of genes in cells, with a hyperbolic or flat latent space, for users of `scvi.model.SCVI`.

    A notebook that uses that class runs with this one: methods have the same names, arguments, shapes, orders and
    signs. What differs is on the page Coming from other packages.

    Arguments:
        adata: counts, after `setup_anndata`. All of its genes are used.
        n_hidden, n_layers: width and number of the hidden layers; by default both suit the number of cells.
        n_latent: dimension of the latent space.
        dropout_rate: of the encoder, by default 0.1.
        dispersion: "gene", "gene-batch" or "gene-cell".
        gene_likelihood: "nb", "zinb" or "poisson".
        use_observed_lib_size: whether the size of a cell is the total of its counts, where there are no size factors.
            Otherwise sizes are unknown: log-normal with the moments of the totals in each batch, and integrated out.
        settings: settings of Curvae by name, such as `curvature=0`, `space="h2,e8"`, `neighbours`, `posterior`,
            `prior_scale` or `random_state`; `advanced` takes a dictionary of them.

    Attributes:
        adata: the cells.
        history: figures of every epoch by name, a data frame each.
        notes_, warnings_: what was done to the data, and what looks wrong with data or map.

    Example:
        >>> import anndata
        >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2.0, (60, 20)).astype(np.float32))
        >>> CellVAE.setup_anndata(adata)
        >>> model = CellVAE(adata, n_latent=2)
        >>> model.train(max_epochs=2)
        >>> model.get_latent_representation().shape
        (60, 2)
    """

    def __init__(
        self,
        adata: Any,
        n_hidden: int | None = None,
        n_latent: int = 10,
        n_layers: int | None = None,
        dropout_rate: float | None = None,
        dispersion: str = "gene",
        gene_likelihood: str = "nb",
        use_observed_lib_size: bool = True,
        *,
        advanced: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        require_choice("gene_likelihood", gene_likelihood, ("nb", "zinb", "poisson"))
        given = {**settings, **(advanced or {}), "dispersion": dispersion, "gene_likelihood": gene_likelihood}
        given["learn_sizes"] = not use_observed_lib_size
        given |= {} if "space" in given else {"n_latent": n_latent}
        given |= {} if dropout_rate is None else {"dropout_rate": dropout_rate}
        if n_hidden is not None or n_layers is not None:
            given["hidden"] = (n_hidden or _WIDTH,) * (1 if n_layers is None else n_layers)
        values = {_NAMED.get(name, name): plain(value) for name, value in given.items()}
        _refuse("CellVAE", values.keys() - described(Config).keys())
        try:
            self._config = Config(**values)
        except CurvaeError as error:
            raise CurvaeError(
                str(error).replace("`dim", "`n_latent").replace("`dropout", "`dropout_rate"), value=error.value
            ) from None
        roles, layer = _read_setup(_require_anndata(adata))
        data, schema = read_anndata(adata, roles, layer=layer, genes="all").finish(None, "error")
        self._hold(adata, schema, data)

    def _hold(
        self, adata: Any, schema: Schema, data: Dataset, reference: CellVAE | None = None, unfrozen: bool = False
    ) -> None:
        """Take cells to train on, from the start or from a reference on."""
        self._reference, self._unfrozen = reference, unfrozen
        self._known: pd.DataFrame | None = None  # places of the cells of a reference, as a table of its map
        self._data: Dataset | None
        self.adata, self._schema, self._data = adata, schema, data
        self.is_trained, self.history = False, dict[str, pd.DataFrame]()
        self.notes_, self.warnings_ = data.notes, list(data.warnings)

    # --- data -------------------------------------------------------------------------------------------------------

    @classmethod
    def setup_anndata(
        cls,
        adata: Any,
        layer: str | None = None,
        batch_key: str | None = None,
        labels_key: str | None = None,
        size_factor_key: str | None = None,
        categorical_covariate_keys: Sequence[str] | None = None,
        continuous_covariate_keys: Sequence[str] | None = None,
        **others: Any,
    ) -> None:
        """Say which layer holds the counts and what columns of `obs` are for, in `adata.uns["curvae_setup"]`.

        Arguments:
            adata: the cells; nothing else in it changes.
            layer: that holds the counts; X by default.
            batch_key: column with the batch.
            labels_key: column with a label of each cell; it takes no part in the training.
            size_factor_key: column with sizes of cells, in place of the total of their counts.
            categorical_covariate_keys, continuous_covariate_keys: further columns that are given to the decoder.
            others: refused.
        """
        _refuse("CellVAE.setup_anndata", others)
        roles: dict[str, Any] = {
            "layer": layer,
            "batch_key": batch_key,
            "labels_key": labels_key,
            "size_factor_key": size_factor_key,
            "categorical_covariate_keys": [*(categorical_covariate_keys or ())] or None,
            "continuous_covariate_keys": [*(continuous_covariate_keys or ())] or None,
        }
        setup = {name: value for name, value in roles.items() if value is not None}
        check_roles(Path("AnnData"), _roles(setup), [str(name) for name in _require_anndata(adata).obs])
        adata.uns[_SETUP] = setup

    def _read(self, adata: Any, indices: Any, others: Iterable[str] = (), decode: bool = True) -> Dataset:
        """Read cells as the model knows them, by default its own; of batches that it does not know, raise where the
        decoder or the encoder needs them, and warn otherwise. Other arguments of a method are refused."""
        _refuse("CellVAE", others)
        cells = self._cells(adata)
        if adata is None and self._data is not None:
            data = self._data if indices is None else self._data.take(np.arange(len(self._data))[indices])
        else:
            cells = cells if indices is None else cells[indices]
            data, _ = read_anndata(cells, Roles(), self._schema).finish(self._schema, "error")
            self._judge_batches(cells, data, decode)
        self._fitted.require_covariates(data, self._schema, "adata", decode)
        return data

    def _cells(self, adata: Any) -> Any:
        """Return the cells asked for, by default those of the training; raise without any, or before the training."""
        self._require_trained()
        if adata is None and self.adata is None:
            raise CurvaeError("the model was loaded without cells; give `adata=…`")
        return self.adata if adata is None else _require_anndata(adata)

    def _require_trained(self) -> None:
        if not self.is_trained:
            raise CurvaeError("the model is not trained yet; call `train` first")

    def _judge_batches(self, cells: Any, data: Dataset, decode: bool) -> None:
        """Raise for batches that the networks must know and do not; warn of what else is wrong with cells."""
        column = self._schema.batches
        if column is not None and self._schema.known_batches and column.name in cells.obs:
            unseen = _obs(cells).unseen_categories(column)
            encoded = self._fitted.config.encode_covariates
            if unseen and (decode or encoded):
                others = (
                    "" if encoded else ", decode them as of others with get_normalized_expression(transform_batch=…)"
                )
                raise CurvaeError(
                    f"the model does not know the batches {quoted(unseen)} of {column.name!r}; train it on them with "
                    f"CellVAE.load_query_data{others}, or leave these cells out"
                )
        for text in data.warnings:
            warnings.warn(text, stacklevel=4)

    # --- training ---------------------------------------------------------------------------------------------------

    def train(
        self,
        max_epochs: int | None = None,
        accelerator: str = "auto",
        devices: int | str | Sequence[int] = "auto",
        train_size: float | None = None,
        validation_size: float | None = None,
        *,
        batch_size: int = 128,
        early_stopping: bool = False,
        early_stopping_patience: int | None = None,
        **others: Any,
    ) -> None:
        """Train the model, from the start; one of a query from the reference on.

        Arguments:
            max_epochs: passes over the cells; by default as many as their number suits.
            accelerator, devices: "auto", "cpu", or "gpu" and one device.
            train_size: share of the cells to train on, 0.9 by default.
            validation_size: share of the cells to watch the training on; by default all others.
            batch_size: cells of a step.
            early_stopping: without progress on validation cells, go back to the best weights and end; otherwise the
                last weights are kept.
            early_stopping_patience: epochs without progress.
            others: refused.
        """
        _refuse("CellVAE.train", others)
        train = 0.9 if train_size is None else train_size
        validation = 1 - train if validation_size is None else validation_size
        if self._data is None:
            raise CurvaeError("the model was loaded without cells; give them to `CellVAE.load` with `adata=…`")
        if self._known is not None and self._reference is None:
            raise CurvaeError(
                "this model of a query was loaded without its reference; call CellVAE.load_query_data again"
            )
        if not (0 < train <= 1 and 0 <= validation <= 1 - train + 1e-9):
            raise CurvaeError(
                f"`train_size` and `validation_size` must be shares of the cells that add up to at most 1, got {train} "
                f"and {validation}"
            )
        patience = early_stopping_patience or self._config.patience
        asked: dict[str, Any] = {"validation": round(validation, 9), "patience": patience if early_stopping else None}
        asked |= {} if max_epochs is None else {"epochs": max_epochs}
        config = replace(self._config, batch_size=batch_size, **asked)
        rest = max(0.0, round(1 - train - validation, 9))
        split = random_split(len(self._data), config.validation, rest, config.seed)
        how: dict[str, Any] = {"split": split, "device": _device(accelerator, devices)}
        if (base := self._reference) is None:
            fitted = fit(config, self._data, **how)
        else:
            fitted = fit_query(base._fitted, base._schema, self._data, config, unfrozen=self._unfrozen, **how)
        embedding = embed(fitted, self._data)
        table = embedding_table(
            embedding, in_memory(self._data.ids), in_memory(self._data.labels), fitted.split.names(len(self._data))
        )
        if base is not None and (fit_of_known := base._description["summary"].get("fit_scores")):
            table["unknown"] = unknown_probability(fit_scores(base._fitted, self._data), **fit_of_known)
        self.warnings_ = [*self._data.warnings, *health(fitted, embedding)]
        facts = {
            "fingerprint": self._data.fingerprint,
            "rows": len(self._data),
            "features": len(self._schema.names),
            "shape": list(self._schema.shape),
            "blocks": [],
            "label": self._schema.label,
            "notes": list(self.notes_),
            "warnings": list(self._data.warnings),
            "schema": self._schema.to_json(),
        }
        summary = {**fitted.factor_figures, "fit_scores": held_out_fit(fitted, self._data)}
        self._take(fitted, embedding, table, {"data": facts, "summary": summary})
        if base is not None:
            self._known = self._place_known(base)

    def _take(self, fitted: Fitted, embedding: Embedding, table: pd.DataFrame, description: Mapping[str, Any]) -> None:
        """Become the trained model, given its map and what `config.json` says of its data."""
        self._fitted, self._embedding, self._table = fitted.double(), embedding, table
        self._description = {name: description[name] for name in ("data", "summary")}
        records = pd.DataFrame(fitted.history).set_index("epoch")
        records.index -= 1
        self.history = {
            name: (sign * records[figure]).dropna().to_frame(name)
            for name, (figure, sign) in _FIGURES.items()
            if figure in records
        }
        self.is_trained = True

    # --- queries ----------------------------------------------------------------------------------------------------

    @classmethod
    def prepare_query_anndata(
        cls,
        adata: Any,
        reference_model: CellVAE | str | os.PathLike[str],
        return_reference_var_names: bool = False,
        inplace: bool = True,
    ) -> Any:
        """Give query cells the genes of a reference in its order, with 0 for those that they lack, at most 20 %.

        Other models need that; `load_query_data` takes cells as they are.

        Arguments:
            adata: the query.
            reference_model: the model, or the folder that it was saved in.
            return_reference_var_names: return the names of the genes and do nothing else.
            inplace: change `adata`; otherwise return another object.
        """
        names = pd.Index(_reference(reference_model)._schema.names)
        if return_reference_var_names:
            return names
        messages, genes = Messages(), np.array(_require_anndata(adata).var_names.astype(str))
        places = match_genes("AnnData", genes, list(names), messages)
        for text in messages.warnings:
            warnings.warn(text, stacklevel=2)
        x, layers = (
            None if adata.X is None else choose_genes(as_matrix(adata.X), places),
            {name: choose_genes(as_matrix(values), places) for name, values in adata.layers.items()},
        )
        known = {"obs": adata.obs, "obsm": adata.obsm, "uns": adata.uns, "obsp": adata.obsp}
        made = type(adata)(x, var=adata.var.reindex(names), layers=layers, **known)
        return adata._init_as_actual(made) if inplace else made

    @classmethod
    def load_query_data(
        cls,
        adata: Any,
        reference_model: CellVAE | str | os.PathLike[str],
        unfrozen: bool = False,
        accelerator: str = "auto",
        **others: Any,
    ) -> Self:
        """Make a model of a query, cells of other batches, from a trained one; then `train` it.

        The model gets columns, dispersions and a last layer of the decoder for the new batches, and these alone are
        trained: cells of the reference stay where they are.

        Arguments:
            adata: the query, with the layer and the columns of `obs` that the reference was trained with. Genes are
                matched by name; those that are missing, at most 20 %, count as 0.
            reference_model: the model, or the folder that it was saved in.
            unfrozen: train all of the model, so that cells of the reference move.
            accelerator: as of `train`, for a model that is read from a folder.
            others: refused.
        """
        _refuse("CellVAE.load_query_data", others)
        reference, cells = _reference(reference_model, accelerator), _require_anndata(adata)
        schema = reference._with_batches(_obs(cells), unfrozen)
        if unfrozen and reference.adata is None:
            raise CurvaeError("`unfrozen=True` moves the cells of the reference; load it with them, with `adata=…`")
        data, _ = read_anndata(cells, Roles(), schema).finish(schema, "error")
        reference._fitted.require_covariates(data, schema, "adata", True)
        for text in data.warnings:
            warnings.warn(text, stacklevel=2)
        return cls._of_query(reference, data, cells, unfrozen)

    def _with_batches(self, obs: FrameTable, unfrozen: bool = False) -> Schema:
        """Return the schema with the batches of a query too; raise if there is nothing to learn of it."""
        column = self._schema.batches
        if column is None:
            raise CurvaeError(
                "the reference was trained without batches, and nothing else can be learned of a query; train it with "
                "`batch_key`, a column of `obs` that may have a single value"
            )
        require_column(obs.path, "batch_key", column.name, obs.names)
        batches = obs.unseen_categories(column)
        if not (batches or unfrozen):
            raise CurvaeError(
                f"the reference knows all batches of the query in {column.name!r}, so there is nothing to train; use "
                "the reference itself, or train all of it with `unfrozen=True`"
            )
        return self._schema.with_batches(batches)

    @classmethod
    def _of_query(cls, reference: CellVAE, data: Dataset, adata: Any = None, unfrozen: bool = False) -> Self:
        """Make a model of a query, of cells that were read with the schema of `_with_batches`."""
        assert data.schema is not None
        new = cls.__new__(cls)
        new._config = replace(reference._fitted.config, epochs=None, epoch_steps=None, patience="auto")
        new._hold(adata, data.schema, data, reference, unfrozen)
        if unfrozen:
            moved = "all weights are trained, so that cells of the reference move: place them with this model."
            new.notes_ = (*new.notes_, moved)
        return new

    def _place_known(self, reference: CellVAE) -> pd.DataFrame:
        """Return the table of the map of a reference, where its cells are in this model."""
        if not self._unfrozen:
            return pd.concat([reference._table, reference._known], ignore_index=True)
        data = self._read(reference.adata, None, decode=False)
        return embedding_table(self._embed(data), in_memory(data.ids), in_memory(data.labels), "reference")

    def transfer_labels(self, labels_key: str, k: int = 15) -> pd.DataFrame:
        """Give the cells of a query labels of its reference, and write them to `adata.obs`.

        Arguments:
            labels_key: column with the labels, which the reference was set up with.
            k: nearest cells of the reference that have a say, weighted by the overlap of their posteriors with that of
                the cell.

        Returns:
            A data frame with `curvae_label`; with `curvae_label_probability`, the weight of the cells with that label,
            calibrated on cells of the reference; and with `curvae_unknown`, the probability that a cell belongs to no
            part of the reference: how its log-likelihood compares with that of cells of the reference that were held
            out. It is NaN for a reference that was saved before these were noted.
        """
        self._require_trained()
        if self._known is None:
            raise CurvaeError("the model has no reference; make one of a query with CellVAE.load_query_data")
        labels = self._known["label"].to_numpy(np.str_)
        if labels_key != self._schema.label or not (labels != "").any():
            known = "has none" if self._schema.label is None else f"has {self._schema.label!r}"
            raise CurvaeError(
                f"`labels_key` names {labels_key!r}, and the reference {known}; give `labels_key=…` to setup_anndata "
                "before it is trained"
            )
        told = self._known[labels != ""]
        sigma = told.filter(regex=r"^(\w+_)?sigma$").to_numpy(np.float64)
        places = told.filter(regex=r"^tangent_\d+$").to_numpy(np.float64)
        sigma = sigma[:, 0] if sigma.shape[1] == 1 else sigma
        reference = Embedding.from_tangent(places, sigma, self._embedding.placed)
        names, probability = transfer_labels(self._embedding, reference, labels[labels != ""], k)
        found = {"curvae_label": names, "curvae_label_probability": probability}
        found["curvae_unknown"] = self._table.get("unknown", pd.Series(np.nan, self._table.index)).to_numpy()
        frame = pd.DataFrame(found).set_index(self._table["id"].to_numpy())
        if self.adata is not None:
            for name, values in found.items():
                self.adata.obs[name] = values
        return frame

    # --- places -----------------------------------------------------------------------------------------------------

    def _embed(self, data: Dataset) -> Embedding:
        return embed(self._fitted, data).require_finite(in_memory(data.ids))

    def get_latent_representation(
        self,
        adata: Any = None,
        indices: Any = None,
        give_mean: bool = True,
        *,
        return_dist: bool = False,
        coordinates: Literal["tangent", "ball", "ambient"] = "tangent",
        **others: Any,
    ) -> Any:
        """Place cells in the latent space, (cells, coordinates).

        Arguments:
            adata: cells, by default those of the training.
            indices: which of them.
            give_mean: return the centres of the posteriors, otherwise a draw from each.
            return_dist: return centres and variances, two arrays; the variance is that in the tangent space of the
                centre, the same for all axes of a factor.
            coordinates: "tangent", metric ones in the tangent space at the origin, which Euclidean tools take; "ball",
                those in the Poincaré ball; "ambient", those on the hyperboloid, of which each factor has one more, the
                time, at first.
            others: refused.
        """
        require_choice("coordinates", coordinates, _COORDINATES)
        data = self._read(adata, indices, others, decode=False)
        found = self._embed(data)
        if return_dist:
            units = [one.unit for one in found.placed] if len(found.placed) > 1 else [1.0]
            sigma = found.sigma.reshape(len(found), -1) / units
            return found.tangent, np.repeat(sigma**2, [one.dim for one in found.placed], 1)
        if not give_mean:
            found = replace(found, space=self._at_draws(data, 1, lambda batch, z, kl, generator: {"z": z})["z"][0])
        if coordinates != "ambient":
            return found.tangent if coordinates == "tangent" else found.ball
        parts = [(part.chart.space.time(part.points)[:, None], part.points) for part in found.parts]
        return torch.cat([one for pair in parts for one in pair], 1).numpy()

    def write(self, adata: Any = None, n_neighbours: int = 15) -> None:
        """Add the map of cells to their AnnData object, by default that of the training; see `curvae.maps.cells`.

        `obsm["X_curvae"]` and `obsm["X_curvae_ball"]` have coordinates, `obs["curvae_radius"]` and
        `obs["curvae_sigma"]` radius and uncertainty, and functions of scanpy find geodesic neighbours with
        `neighbors_key="curvae"`.
        """
        data = self._read(adata, None, decode=False)
        add_map(self._cells(adata), self._embed(data), n_neighbours)

    # --- the model of counts ----------------------------------------------------------------------------------------

    @torch.no_grad()
    def _at_draws(self, data: Dataset, n_samples: int, function: Any) -> dict[str, Array]:
        """Return what a function tells of places drawn from the posteriors of cells, each (n_samples, cells, …).

        It is called with a batch, places z and log q − log p there, and the source of noise.
        """
        require_count("n_samples", n_samples)
        rows, model, found = self._fitted.rows(data), self._fitted.model, []
        generator = torch.Generator(model.device).manual_seed(self._fitted.config.seed)
        for index in torch.arange(len(rows)).split(max(1, _OUTPUTS // (n_samples * model.likelihood.outputs))):
            batch = rows.batch(index)
            z, kl = model.draw(batch, model.noise(len(batch), n_samples, generator))
            found.append({name: part.cpu().numpy() for name, part in function(batch, z, kl, generator).items()})
        return {name: np.concatenate([part[name] for part in found], 1) for name in found[0]}

    def _parameters(self, z: Tensor, batch: Batch, size: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the parameters of the counts of cells, by default of their sizes, each (n_samples, cells, genes)."""
        model: Any = self._fitted.model
        outputs = model.decode(z, batch.context)
        sized = model.likelihood.settle_sizes(outputs, batch) if size is None else batch.joined(size=size)
        return {name: values.float() for name, values in model.likelihood.count_parameters(outputs, sized).items()}

    def _genes(self, gene_list: Sequence[str] | None) -> NDArray[np.bool_]:
        """Tell which genes are asked for, in the order of the model."""
        names = np.array(self._schema.names)
        if gene_list is not None and (unknown := np.setdiff1d(gene_list, names)).size:
            raise CurvaeError(f"`gene_list` has genes that the model does not know: {quoted(unknown)}; leave them out")
        return np.ones(len(names), bool) if gene_list is None else np.isin(names, list(gene_list))

    def _as_of(self, data: Dataset, batch: Any) -> Dataset:
        """Return cells as if they were of another batch for the decoder."""
        (number,) = self._batch_numbers("transform_batch", [batch])
        if data.context is None and len(self._schema.covariates) > 1:
            self._fitted.require_covariates(data, self._schema, "adata", True)
        first, count = self._schema.batch
        context = np.zeros((len(data), count)) if data.context is None else np.array(in_memory(data.context))
        context[:, first : first + count] = np.eye(count)[number]
        return replace(data, context=context, context_names=self._schema.context_names)

    def get_normalized_expression(
        self,
        adata: Any = None,
        indices: Any = None,
        transform_batch: Any = None,
        gene_list: Sequence[str] | None = None,
        library_size: float | Literal["latent"] = 1,
        n_samples: int = 1,
        *,
        return_mean: bool = True,
        return_numpy: bool | None = None,
        **others: Any,
    ) -> Any:
        """Return expected counts of genes in cells of equal size, at draws from the posteriors.

        Arguments:
            adata, indices: as of `get_latent_representation`.
            transform_batch: decode as of this batch, or of several, whose mean is returned; by default the batch of
                each cell.
            gene_list: names of genes, by default all; the order is that of the model.
            library_size: size of the cells; "latent" takes that of each cell, with which these are means of counts.
            n_samples: draws of each cell, of which the mean is returned.
            return_mean: return that; otherwise all draws, an array (n_samples, cells, genes).
            return_numpy: return an array in place of a data frame.
            others: refused.
        """
        genes = self._genes(gene_list)
        data = self._read(adata, indices, others, decode=transform_batch is None)

        def shares(batch: Batch, z: Tensor, *_: Any) -> dict[str, Tensor]:
            size = None if library_size == "latent" else torch.full_like(z[0, :, 0], float(library_size))
            return {"mean": self._parameters(z, batch, size)["mean"][..., genes]}

        names = transform_batch if isinstance(transform_batch, list | tuple | np.ndarray) else [transform_batch]
        shown = [data if name is None else self._as_of(data, name) for name in names]
        found = sum(self._at_draws(one, n_samples, shares)["mean"] / len(shown) for one in shown)
        if n_samples > 1 and not return_mean:
            return found
        mean = np.mean(found, 0)
        return mean if return_numpy else pd.DataFrame(mean, in_memory(data.ids), np.array(self._schema.names)[genes])

    def get_likelihood_parameters(
        self, adata: Any = None, indices: Any = None, n_samples: int = 1, give_mean: bool = False, **others: Any
    ) -> dict[str, Array]:
        """Return the parameters of the distribution of counts at draws from the posteriors.

        These are "mean", "dispersions" θ, with which the variance is mean + mean²/θ, and of "zinb" the probability of a
        "dropout"; each (cells, genes), or of several draws (n_samples, cells, genes), of which `give_mean` takes the
        mean.
        """
        data = self._read(adata, indices, others)
        found = self._at_draws(data, n_samples, lambda batch, z, *_: self._parameters(z, batch))
        return {name: values.mean(0) if give_mean or n_samples == 1 else values for name, values in found.items()}

    def posterior_predictive_sample(
        self,
        adata: Any = None,
        indices: Any = None,
        n_samples: int = 1,
        gene_list: Sequence[str] | None = None,
        **others: Any,
    ) -> Array:
        """Draw counts for cells like those given, (cells, genes), or of several draws (cells, genes, n_samples)."""
        genes, data = self._genes(gene_list), self._read(adata, indices, others)
        model: Any = self._fitted.model

        def draw(batch: Batch, z: Tensor, kl: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
            outputs = model.decode(z, batch.context)
            sized = model.likelihood.settle_sizes(outputs, batch)
            return {"x": model.likelihood.sample(outputs, sized, generator)[..., genes]}

        counts = self._at_draws(data, n_samples, draw)["x"]
        return counts[0] if n_samples == 1 else np.moveaxis(counts, 0, -1)

    def get_elbo(self, adata: Any = None, indices: Any = None, *, return_mean: bool = True, **others: Any) -> Any:
        """Compute the evidence lower bound of cells from one draw of each, higher being better: its mean, or each."""
        reconstruction, kl = self._terms(self._read(adata, indices, others))
        return float((reconstruction - kl).mean()) if return_mean else reconstruction - kl

    def get_reconstruction_error(
        self, adata: Any = None, indices: Any = None, *, return_mean: bool = True, **others: Any
    ) -> dict[str, Any]:
        """Compute −log p(x | z) of cells at one draw of each, lower being better, as "reconstruction_loss"."""
        reconstruction, _ = self._terms(self._read(adata, indices, others))
        return {"reconstruction_loss": float(-reconstruction.mean()) if return_mean else -reconstruction}

    def _terms(self, data: Dataset) -> tuple[Array, Array]:
        """Compute log p(x | z) and log q(z | x) − log p(z) of cells at a draw of each."""
        model = self._fitted.model
        found = self._at_draws(data, 1, lambda batch, z, kl, _: {"x": model.reconstruction(z, batch), "kl": kl})
        return found["x"][0], found["kl"][0]

    def get_marginal_ll(
        self,
        adata: Any = None,
        indices: Any = None,
        n_mc_samples: int = 1000,
        *,
        return_mean: bool = True,
        refine: int = 0,
        return_ess: bool = False,
        **others: Any,
    ) -> Any:
        """Compute log p(x) of cells by importance sampling, higher being better.

        Arguments:
            adata, indices: as of `get_latent_representation`.
            n_mc_samples: draws of each cell.
            return_mean: return the mean over cells; otherwise one each.
            refine: steps by which the posterior of each cell is improved first; with 0, draws are from the encoder's.
            return_ess: return the effective sample sizes too, (cells,): estimates that rest on few of them are too low.
            others: refused.
        """
        require_count("n_mc_samples", n_mc_samples, "importance_samples")
        data = self._read(adata, indices, others)
        found = likelihoods(self._fitted, data, n_mc_samples, self._fitted.config.seed, refine=refine)
        log_prob = found.require_finite(in_memory(data.ids)).log_prob
        result = float(log_prob.mean()) if return_mean else log_prob
        return (result, found.ess) if return_ess else result

    # --- differential expression ------------------------------------------------------------------------------------

    def differential_expression(
        self,
        adata: Any = None,
        groupby: str | None = None,
        group1: str | Sequence[str] | None = None,
        group2: str | None = None,
        idx1: Any = None,
        idx2: Any = None,
        mode: Literal["change", "vanilla"] = "change",
        delta: float = 0.25,
        batch_size: int | None = None,
        all_stats: bool = True,
        batch_correction: bool = False,
        batchid1: Sequence[str] | None = None,
        batchid2: Sequence[str] | None = None,
        fdr_target: float = 0.05,
        *,
        path: tuple[str, str] | None = None,
        pseudocounts: float | None = None,
        **others: Any,
    ) -> pd.DataFrame:
        """Find genes that are expressed differently in populations of cells, and how probable that is.

        Give groups, or cells, or two places of the map. The tests are those of `curvae.training.differential`, which
        take the noise of the counts into account.

        Arguments:
            adata: cells, by default those of the training.
            groupby: column of `obs` with groups, by default the labels of the setup.
            group1: names of groups, each compared with `group2`; by default all.
            group2: name of a group; by default all other cells.
            idx1, idx2: in place of groups, cells by a mask, by numbers or by a query of `obs`; by default of `idx2` all
                other cells.
            mode: "change": the probability that the log2 fold change is at least `delta`; "vanilla": that the first
                population has more.
            delta: least log2 fold change that counts.
            batch_size: changes no value.
            all_stats: add means of counts.
            batch_correction: compare the cells as if all were of the same batches.
            batchid1, batchid2: those batches, for each population; by default all.
            fdr_target: expected share of false discoveries.
            path: in place of groups, the names of two cells or groups, from and to: the 100 cells that are nearest to
                the second place are compared with those nearest to the first.
            pseudocounts: added to the shares of genes; by default one count in the smaller population.
            others: refused.

        Returns:
            A line for each gene and comparison, with the columns of scvi-tools: `proba_de`, `bayes_factor`, `scale1`,
            `lfc_mean`, `is_de_fdr_0.05` and others, the most probable genes first.
        """
        cells = self._cells(adata)
        if (path is not None) + (idx1 is not None) > 1 or (idx2 is not None and idx1 is None):
            raise CurvaeError("give populations by groups, by `idx1` and `idx2`, or by `path`, and not by two of these")
        batches = self._batch_numbers("batchid1", batchid1), self._batch_numbers("batchid2", batchid2)
        if (batchid1 is not None or batchid2 is not None) and not batch_correction:
            raise CurvaeError("`batchid1` and `batchid2` need `batch_correction=True`")
        data, column = self._read(adata, None, others), groupby or self._schema.label
        if idx1 is not None:
            first = _cells_of(cells, "idx1", idx1)
            pair = np.stack([first, ~first if idx2 is None else _cells_of(cells, "idx2", idx2)])
            asked = Populations([("Group 1", "Rest" if idx2 is None else "Group 2")], [pair])
        elif path is not None:
            found, labels = self._embed(data), _labels(cells, "groupby", column)
            ends = [found.take(_find_cells(cells, labels, "path", name)).centre for name in path]
            apart = [point_distances(found.placed, found.space, end) for end in ends[::-1]]
            nearest = np.argsort(apart, 1, kind="stable")[:, : min(_NEAREST, len(found) // 5)]
            asked = Populations([(path[1], path[0])], [(nearest[..., None] == np.arange(len(found))).any(1)])
        else:
            names = [group1] if isinstance(group1, str) else group1
            asked = split_groups(_labels(cells, "groupby", column), names, group2, column or "labels")
        return compare_populations(
            self._fitted,
            data,
            asked,
            self._schema.names,
            mode=mode,
            delta=delta,
            batches=batches if batch_correction else ((), ()),
            fdr_target=fdr_target,
            all_stats=all_stats,
            pseudocounts=pseudocounts,
        )

    def _batch_numbers(self, parameter: str, names: Sequence[str] | None) -> Sequence[int]:
        """Return the numbers of batches, by default of all."""
        known = self._schema.known_batches
        if unknown := [str(name) for name in names or () if str(name) not in known]:
            raise CurvaeError(
                f"`{parameter}` names unknown batches {quoted(unknown)}; the model knows {quoted(known) or 'none'}"
            )
        return [known.index(str(name)) for name in (known if names is None else names)]

    # --- lineages ---------------------------------------------------------------------------------------------------

    def lineage(
        self,
        root: str | None = None,
        groups: str | None = None,
        draws: int = 25,
        *,
        repeats: int = 1,
        adata: Any = None,
    ) -> Lineage:
        """Join groups of cells to a tree, and find how far along it every cell lies: its pseudotime.

        Writes `obs["curvae_pseudotime"]` with the ends of its 90 % interval, `…_low` and `…_high`,
        `obs["curvae_branch"]`, `obsm["curvae_branch_probability"]` (cells, branches), and the tree as
        `uns["curvae_lineage"]`; see `curvae.hierarchy.Lineage`.

        Arguments:
            root: where it begins: the name of a group or of a cell; by default the group of the lowest radius.
            groups: column of `obs` with the groups, by default the labels of the setup. Cells without one lie along
                the tree too.
            draws: of the posterior of each cell, for intervals, probabilities and the support of edges. Intervals are
                calibrated on cells whose counts were split in two.
            repeats: trainings. Further ones than that of the model are done here, with the next seeds, and forgotten.
                Then pseudotimes are means, and all else tells too what depends on the training; the tree stays that of
                the model.
            adata: cells, by default those of the training.
        """
        cells, column = self._cells(adata), groups or self._schema.label
        if column is None:
            raise CurvaeError("there are no groups to join; name a column of `obs` with `groups`")
        labels = _labels(cells, "groups", column)
        start: str | int | None = root
        if root is not None and root not in labels:
            start = int(_find_cells(cells, labels, "root", root)[0])
        require_groups(labels, draws)
        data, fitted = self._read(adata, None, decode=False), self._fitted
        found = repeat_lineage(
            fitted,
            embed,
            self._embed(data),
            labels,
            start,
            cells=data.arrays,
            draws=draws,
            names=list(cells.obs_names),
            seed=fitted.config.seed,
            repeats=repeats,
            train=self._train_again,
        )
        for name in ("pseudotime", "low", "high"):
            end = name if name == "pseudotime" else f"pseudotime_{name}"
            cells.obs[f"curvae_{end}"] = getattr(found, name)
        cells.obs["curvae_branch"] = pd.Categorical(np.array(found.branches, dtype=object)[found.branch])
        cells.obsm["curvae_branch_probability"] = found.probability
        cells.uns["curvae_lineage"] = {
            "root": found.root,
            "chosen": found.chosen,
            "newick": found.newick(),
            "branches": np.array(found.branches, dtype=object),
            "edges": found.edges,
        }
        return found

    def _train_again(self, number: int) -> Fitted:
        """Train a further model of the same cells, so many seeds on; raise without these cells, and for a query."""
        fitted = self._fitted
        if self._known is not None:
            raise CurvaeError("`repeats` means nothing to the model of a query; take the lineage of its reference")
        if self._data is None or not np.array_equal(in_memory(self._data.ids), self._table["id"].to_numpy(np.str_)):
            raise CurvaeError("`repeats` needs the cells of the training; load the model with them, with `adata=…`")
        config = replace(fitted.config, seed=fitted.config.seed + number)
        return fit(config, self._data, split=fitted.split, device=fitted.model.device).double()

    def expression_along(
        self, lineage: Lineage, end: str, gene_list: Sequence[str] | None = None, count: int = 20, steps: int = 41
    ) -> pd.DataFrame:
        """Return expected counts of genes in a cell of median size, from the root of a tree to one of its groups.

        They are those of the decoder along the way, averaged over batches. The intervals tell how well the way is
        known, from the drawn trees, and not how much cells differ.

        Arguments:
            lineage: the tree, a result of `lineage`.
            end: name of the group at the end.
            gene_list: names of genes, by default those that change most.
            count: how many of these.
            steps: places on the way.

        Returns:
            A line for each gene and place, with gene, pseudotime, mean, low and high, the gene that changes most first.
        """
        self._require_trained()
        named = None if gene_list is None else np.flatnonzero(self._genes(gene_list))
        found = explain_along(
            self._fitted,
            self._embedding,
            lineage,
            end,
            columns=count,
            features=named,
            steps=steps,
            context=batch_contexts(self._schema),
        )
        return found.table(self._schema.names, "gene", "pseudotime")

    # --- files ------------------------------------------------------------------------------------------------------

    def save(
        self,
        dir_path: str | os.PathLike[str],
        overwrite: bool = False,
        save_anndata: bool = False,
        **others: Any,
    ) -> None:
        """Write a run folder (JSON, safetensors and the table of the map), which the command line reads.

        Arguments:
            dir_path: the folder.
            overwrite: write into a folder that holds a run.
            save_anndata: write the cells too, as `adata.h5ad`.
            others: refused.
        """
        _refuse("CellVAE.save", others)
        self._require_trained()
        folder = Path(dir_path)
        fresh = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        if not fresh and not (overwrite and (folder / CONFIG).is_file()):
            raise CurvaeError(f"{folder} exists; choose another name, or overwrite a run with `overwrite=True`")
        write_tables(embedding_path(folder, len(self._table)), [self._table])
        remove_files([folder / _KNOWN])
        if self._known is not None:
            write_tables(folder / _KNOWN, [self._known])
        save_fitted(folder, self._fitted, self._embedding, self._description)
        if save_anndata:
            anndata = require("anndata", f"{_STORED} needs anndata to be written")
            with anndata.settings.override(allow_write_nullable_strings=True):  # as texts of pandas 3 are
                self.adata.write_h5ad(folder / _STORED)

    @classmethod
    def load(
        cls, dir_path: str | os.PathLike[str], adata: Any = None, accelerator: str = "auto", **others: Any
    ) -> Self:
        """Load a model from a run folder, of `save` or of `curvae fit`.

        Arguments:
            dir_path: the folder.
            adata: cells, by default those that were saved with the model; without any, give cells to every method.
            accelerator: as of `train`.
            others: refused.
        """
        _refuse("CellVAE.load", others)
        folder = Path(dir_path)
        fitted, embedding, description, schema = load_fitted(folder, Fitted)
        if schema.kind != "cells":
            raise CurvaeError(f"{folder} holds a model of a {schema.kind}, not of cells; load it with PoincareVAE.load")
        if adata is None and (folder / _STORED).is_file():
            adata = require("anndata", f"{_STORED} needs anndata to be read").read_h5ad(folder / _STORED)
        new = cls.__new__(cls)
        new._config, new._reference = fitted.config, None
        new.adata, new._schema, new._data = adata, schema, None
        new._known = read_embedding(folder / _KNOWN) if (folder / _KNOWN).is_file() else None
        facts = description["data"]
        new.notes_, new.warnings_ = tuple(facts.get("notes", ())), list(facts.get("warnings", ()))
        fitted.model.to(_device(accelerator, "auto"))
        new._take(fitted, embedding, read_embedding(embedding_path(folder)), description)
        if adata is not None:
            new._data = new._read(adata, None, decode=False)
        return new


# Of `history`: figures of records, and with which sign.
_FIGURES = {
    "elbo_train": ("elbo", -1),
    "elbo_validation": ("validation_elbo", -1),
    "reconstruction_loss_train": ("reconstruction", -1),
    "reconstruction_loss_validation": ("validation_reconstruction", -1),
    "kl_local_train": ("kl", 1),
    "kl_local_validation": ("validation_kl", 1),
}


def _reference(model: CellVAE | str | os.PathLike[str], accelerator: str = "auto") -> CellVAE:
    """Return a trained model, which may be read from a folder."""
    found = model if isinstance(model, CellVAE) else CellVAE.load(model, accelerator=accelerator)
    found._require_trained()
    return found


def _labels(cells: Any, parameter: str, column: str | None) -> NDArray[np.str_]:
    """Return the group of every cell, "" for none."""
    if column is None:
        return np.full(len(cells), "", dtype=np.str_)
    require_column(Path("AnnData"), parameter, column, [str(name) for name in cells.obs])
    return texts_of(cells.obs[column])


def _find_cells(cells: Any, labels: NDArray[np.str_], parameter: str, name: str) -> NDArray[np.intp]:
    """Return the places of the cells of a group, or of the cell of this name."""
    found = np.flatnonzero(labels == name) if name in labels else np.flatnonzero(cells.obs_names == name)[:1]
    if not found.size:
        raise CurvaeError(f"`{parameter}` is no cell and no group, {name!r}; groups are {quoted(np.unique(labels))}")
    return found


def _cells_of(cells: Any, parameter: str, asked: Any) -> NDArray[np.bool_]:
    """Tell which cells are meant by a mask, by numbers or by a query of `obs`."""
    every = np.arange(len(cells))
    chosen = pd.Series(every, cells.obs.index).loc[cells.obs.query(asked).index] if isinstance(asked, str) else asked
    try:
        return np.isin(every, every[np.asarray(chosen)])
    except IndexError as error:
        raise CurvaeError(
            f"`{parameter}` must name cells by a mask, by numbers or by a query of `obs`; {error}"
        ) from None


def _obs(adata: Any) -> FrameTable:
    """Return what describes cells as a table."""
    return FrameTable(Path("AnnData"), adata.obs.reset_index(drop=True))


def _read_setup(adata: Any) -> tuple[Roles, str | None]:
    """Return the roles that `setup_anndata` noted, and the layer with the counts."""
    if not isinstance(setup := adata.uns.get(_SETUP), Mapping):
        raise CurvaeError("the AnnData object is not set up; call CellVAE.setup_anndata(adata, …) first")
    return _roles(setup), setup.get("layer")


def _roles(setup: Mapping[str, Any]) -> Roles:
    categorical, continuous = (tuple(setup.get(f"{kind}_covariate_keys", ())) for kind in ("categorical", "continuous"))
    return Roles(
        label=setup.get("labels_key"),
        categorical=categorical,
        exposure=setup.get("size_factor_key"),
        covariates=categorical + continuous,
        batch_key=setup.get("batch_key"),
    )


def _device(accelerator: str, devices: Any) -> torch.device:
    """Choose the device that arguments of `train` name."""
    require_choice("accelerator", accelerator, ("auto", "cpu", "gpu", "cuda"))
    if devices not in ("auto", 1, -1) and not (isinstance(devices, list | tuple) and len(devices) == 1):
        raise CurvaeError(f"`devices` must be one device, such as 1 or [0], got {devices!r}; use `curvae fit` for more")
    name = accelerator.replace("gpu", "cuda")
    return choose_device(f"cuda:{devices[0]}" if name == "cuda" and not isinstance(devices, str | int) else name)
